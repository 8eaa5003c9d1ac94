// Keeps the page up to date without moving anything under the reader: not while it is hidden, paused, or while text is selected.
"use strict";
(() => {
  const SECONDS = 5, SOON = 1;
  let paused = false, timer, open = new Set();
  const live = () => document.getElementById("live");
  const say = (text) => { document.getElementById("updated").textContent = ` · ${text}`; };

  function plan() {
    clearTimeout(timer);
    if (live()) timer = setTimeout(refresh, (live().dataset.pending === "true" ? SOON : SECONDS) * 1000);
  }

  function isRead() {
    const selected = getSelection();
    return selected !== null && !selected.isCollapsed && live().contains(selected.anchorNode);
  }

  function refresh() {
    plan();
    if (paused || document.hidden || isRead() || document.querySelector(".plot:hover")) return;
    const asked = htmx.ajax("GET", location.pathname + location.search, { target: "#live", select: "#live", swap: "outerHTML" });
    asked.catch(() => { /* whoever listens to the events of htmx says what went wrong */ });
  }

  function away(text) {
    const notice = document.getElementById("away");
    notice.hidden = text === "";
    if (notice.textContent !== text) notice.textContent = text;
  }

  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("pause"), body = document.body;
    if (!live()) return;
    button.hidden = false;
    button.addEventListener("click", () => {
      paused = !paused;
      button.setAttribute("aria-pressed", String(paused));
      button.textContent = paused ? "Paused" : "Pause";
      if (!paused) refresh();
    });
    body.addEventListener("htmx:beforeSwap", () => {
      open = new Set([...live().querySelectorAll("details[open]")].map((one) => one.id));
    });
    body.addEventListener("htmx:afterSwap", () => {
      for (const one of live().querySelectorAll("details")) one.open = open.has(one.id);
      say(`updated ${new Date().toLocaleTimeString()}`);
      away("");
      plan();
    });
    const lost = () => away("frazil does not answer: what is shown is old. This page asks again every few seconds.");
    body.addEventListener("htmx:sendError", lost);
    body.addEventListener("htmx:responseError", lost);
    document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
    say(`updated ${new Date().toLocaleTimeString()}`);
    plan();
  });
})();
