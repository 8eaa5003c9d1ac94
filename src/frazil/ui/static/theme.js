// Applies the chosen theme before the page is drawn, and lets the button change it: system, light, dark.
"use strict";
(() => {
  const KEY = "frazil-theme", ORDER = ["system", "light", "dark"], root = document.documentElement;
  const read = () => { try { return localStorage.getItem(KEY); } catch { return null; } };
  const keep = (name) => { try { localStorage.setItem(KEY, name); } catch { /* a private window: it lasts as long as the page */ } };
  let chosen = ORDER.includes(read()) ? read() : "system";

  function apply() {
    if (chosen === "system") root.removeAttribute("data-theme");
    else root.setAttribute("data-theme", chosen);
    const button = document.getElementById("theme");
    if (button) button.textContent = `Theme: ${chosen}`;
    document.dispatchEvent(new Event("frazil:theme"));
  }

  apply();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);
  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    button.hidden = false;
    button.addEventListener("click", () => {
      chosen = ORDER[(ORDER.indexOf(chosen) + 1) % ORDER.length];
      keep(chosen);
      apply();
    });
    apply();
  });
})();
