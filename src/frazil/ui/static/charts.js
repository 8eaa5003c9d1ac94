// Draws the charts of a pipeline, in the colours of the theme, as wide as there is room.
"use strict";
(() => {
  const HEIGHT = 150, drawn = new Map();
  const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800];
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function short(value) {
    if (value === 0) return "0";
    for (const [unit, size] of [["G", 1e9], ["M", 1e6], ["k", 1e3]])
      if (value >= size) return `${+(value / size).toPrecision(3)} ${unit}`;
    return `${+value.toPrecision(3)}`;
  }

  function worded(unit, value) {
    if (value == null) return "";
    if (unit === "bytes") return `${short(value)}B/s`.replace(/(\d)B/, "$1 B");
    if (unit === "seconds") return value < 1 ? `${Math.round(value * 1000)} ms` : `${+value.toPrecision(3)} s`;
    return `${value < 10 ? +value.toPrecision(2) : Math.round(value).toLocaleString("en")} rows/s`;
  }

  function moment(seconds, step) {
    const parts = step >= 86400 ? { month: "short", day: "numeric" } : { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
    if (step < 60) parts.second = "2-digit";
    return new Intl.DateTimeFormat(undefined, parts).format(seconds * 1000);
  }

  function options(plot, unit, show) {
    const line = colour("--line"), ink = colour("--muted"), accent = colour("--accent");
    const axis = { stroke: ink, font: "11px system-ui, sans-serif", grid: { stroke: line, width: 1 }, ticks: { stroke: line, size: 4 } };
    return {
      width: plot.clientWidth, height: HEIGHT, legend: { show: false }, padding: [8, 6, 0, 0],
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
      scales: { y: { range: (_, low, high) => [0, (high || 1) * 1.1] } },
      axes: [
        { ...axis, space: 60, incrs: STEPS, values: (_, ticks, __, ___, step) => ticks.map((tick) => moment(tick, step)) },
        { ...axis, size: 52, space: 34, values: (_, ticks) => ticks.map((tick) => unit === "seconds" ? worded(unit, tick) : short(tick)) },
      ],
      series: [{}, { stroke: accent, fill: `${accent}1f`, width: 1.5, points: { show: false }, paths: uPlot.paths.linear() }],
      hooks: { setCursor: [(chart) => show(chart)] },
    };
  }

  function draw(plot) {
    const unit = plot.dataset.unit, points = JSON.parse(plot.dataset.points);
    const caption = plot.parentElement.querySelector("figcaption");
    const reading = document.createElement("output");
    caption.querySelector("output")?.remove();
    caption.append(reading);
    const show = (chart) => {
      const at = chart.cursor.idx ?? points[0].length - 1;
      reading.textContent = worded(unit, points[1][at]);
      reading.title = new Date(points[0][at] * 1000).toISOString();
    };
    plot.replaceChildren();
    const chart = new uPlot(options(plot, unit, show), points, plot);
    show(chart);
    drawn.set(plot, chart);
  }

  function all() {
    for (const [plot, chart] of drawn)
      if (!plot.isConnected) { chart.destroy(); drawn.delete(plot); }
    for (const plot of document.querySelectorAll(".plot")) {
      drawn.get(plot)?.destroy();
      draw(plot);
    }
  }

  document.addEventListener("DOMContentLoaded", () => {
    all();
    document.addEventListener("frazil:theme", all);
    document.body.addEventListener("htmx:afterSettle", all);
    let waiting;
    addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(all, 120); });
  });
})();
