"use strict";
// Lines over time with uPlot: the same values as the table that a page has without a script.
(() => {
  const text = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 });
  const exact = new Intl.NumberFormat("en", { maximumFractionDigits: 9 });
  const compact = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 2 });
  const plots = [];

  const colour = (name) => {
    const probe = document.createElement("span");
    probe.className = name;
    document.body.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  };

  // The first of `forms` in which no two ticks look alike.
  const unlike = (ticks, forms) => forms.map((form) => ticks.map(form))
    .find((texts, at) => at === forms.length - 1 || new Set(texts).size === texts.length);

  const axisText = (_, values) => unlike(values, [
    (value) => (Math.abs(value) < 10000 ? text : compact).format(value),
    (value) => text.format(value),
    (value) => exact.format(value),
  ]);

  const timeText = (_, times) => unlike(times, [5, 8].map((length) => (at) => {
    const [day, hour] = new Date(at * 1e3).toISOString().split("T");
    return hour.startsWith("00:00:00") ? day.slice(5) : hour.slice(0, length);
  }));

  const draw = (figure) => {
    const own = JSON.parse(figure.dataset.chart);
    const place = figure.querySelector(".plot");
    const count = own.lines[0].values.length;
    const times = Array.from({ length: count }, (_, at) => own.begin + at * own.step);
    const quiet = colour("ink-quiet"), line = colour("ink-line");
    const axis = { stroke: quiet, grid: { stroke: line, width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    const series = own.lines.map((each) => ({
      label: each.label,
      stroke: colour(`line-${each.label.replaceAll(" ", "-")}`),
      width: 1.8,
      points: { show: count === 1 },
      value: (_, value) => (value === null || value === undefined ? "–" : text.format(value)),
    }));
    const options = {
      width: Math.max(place.clientWidth, 200),
      height: 190,
      tzDate: (at) => uPlot.tzDate(new Date(at * 1e3), "Etc/UTC"),
      cursor: { drag: { x: true, y: false } },
      legend: { live: true },
      scales: {
        // For a single value uPlot asks for years.
        x: { range: (_, first, last) => (count === 1 ? [own.begin - own.step, own.begin + own.step] : [first, last]) },
        y: { range: (_, least, most) => range(own.zero ? Math.min(0, least) : least, most, own.zero) },
      },
      axes: [{ ...axis, values: timeText }, { ...axis, size: 74, values: axisText }],
      series: [{ label: "UTC", value: (_, at) => (at === null ? "–" : new Date(at * 1e3).toISOString().slice(0, 16).replace("T", " ")) }, ...series],
    };
    // The legend has the newest values where no cursor asks for others.
    const newest = times.findLastIndex((_, at) => own.lines.some((each) => each.values[at] !== null));
    const showNewest = (plot) => { if (plot.cursor.idx == null && newest >= 0) { plot.setLegend({ idx: newest }, false); } };
    options.hooks = { ready: [showNewest], setCursor: [showNewest] };
    const plot = new uPlot(options, [times, ...own.lines.map((each) => each.values)], place);
    const canvas = place.querySelector("canvas");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", place.dataset.label);
    figure.classList.add("drawn");
    return { place, plot };
  };

  const range = (least, most, fromZero) => {
    if (least === null || most === null) { return [0, 1]; }
    const room = (most - least) * 0.06 || 1;
    return [fromZero && least >= 0 ? 0 : least - room, most + room];
  };

  const drawAll = () => {
    for (const each of plots.splice(0)) { each.plot.destroy(); }
    for (const figure of document.querySelectorAll("figure[data-chart]")) { plots.push(draw(figure)); }
  };

  drawAll();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  document.addEventListener("acktrail:theme", drawAll);
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth === width) { return; }
    width = window.innerWidth;
    for (const { plot, place } of plots) { plot.setSize({ width: Math.max(place.clientWidth, 200), height: 190 }); }
  });
})();
