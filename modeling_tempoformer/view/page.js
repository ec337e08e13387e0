"use strict";
// What all pages share: the embedded data, elements, and charts.

const page = JSON.parse(document.getElementById("page-data").textContent);

// An element with properties and children. Texts become text nodes, never markup.
function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

function byId(id) {
  return document.getElementById(id);
}

// Specifications are parsed once; several views can share one.
const parsedCharts = new Map();

function parsedChart(name) {
  if (!parsedCharts.has(name)) parsedCharts.set(name, vega.parse(page.charts[name]));
  return parsedCharts.get(name);
}

// Draws a chart as SVG in an element. `data` holds rows by the name of a data set, `signals` values by name.
// Returns the view, for `view.signal`, `view.data` and `view.runAsync`.
function draw(name, into, data, signals = {}) {
  const view = new vega.View(parsedChart(name), { renderer: "svg", hover: true, logLevel: vega.Warn });
  for (const [signal, value] of Object.entries(signals)) view.signal(signal, value);
  for (const [set, rows] of Object.entries(data)) view.data(set, rows);
  into.replaceChildren();
  view.initialize(into).run();
  return view;
}

// Makes a chart as wide as its element, or `least` pixels if that is more. What stands beside the plot (axes and their
// words) keeps its width.
function fitWidth(view, into, least = 0) {
  const beside = into.querySelector("svg").getBoundingClientRect().width - view.width();
  view.width(Math.max(into.clientWidth - beside, least, 50)).run();
}
