"use strict";
// Shared by all pages: the embedded data, elements, charts, and files to save.

const page = JSON.parse(document.getElementById("page-data").textContent);

// Creates an element with properties and children. Texts become text nodes, never markup.
function element(tag, properties = {}, ...children) {
  const created = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in created) created[name] = value;
    else created.setAttribute(name, value);
  }
  created.append(...children);
  return created;
}

function byId(id) {
  return document.getElementById(id);
}

// Draws a chart as SVG in an element. `data` holds the rows of data sets by name. Returns a promise of the view, which
// has `view.data(name, rows)`, `view.signal(name, value)` and `view.run()`.
async function draw(name, into, data = {}) {
  const chart = page.charts[name];
  const sets = chart.data.map((set) => (set.name in data ? { ...set, values: data[set.name] } : set));
  // Level 1 logs errors only, because data sets may still be empty.
  const options = { mode: "vega", renderer: "svg", actions: false, defaultStyle: false, tooltip: false, logLevel: 1 };
  return (await vegaEmbed(into, { ...chart, data: sets }, options)).view;
}

// Makes a chart as wide as its element, or its plot `least` pixels wide if that is more. The new width may change the
// labels of the axis on the left, so it is measured twice. `RIGHT` pixels stay free on the right.
const RIGHT = 12;

async function fitWidth(view, into, least = 0) {
  for (let round = 0; round < 2; round++) {
    await view.runAsync();
    const plot = into.querySelector(".mark-group .background").getBoundingClientRect();
    const before = plot.left - into.querySelector("svg").getBoundingClientRect().left;
    view.width(Math.floor(Math.max(into.clientWidth - before - RIGHT, least, 50)));
  }
  // A legend may have grown, too.
  await view.resize().runAsync();
}

// Saves a chart as an SVG file in the colours of the light page.
async function saveChart(view, name) {
  const colours = document.styleSheets[0].cssRules[0].style;
  const svg = await view.toSVG();
  const coloured = svg.replace(/var\((--[\w-]+)\)/g, (_, variable) => colours.getPropertyValue(variable).trim());
  saveFile(`${name}.svg`, "image/svg+xml", coloured);
}

function saveFile(name, type, content) {
  const link = element("a", { href: URL.createObjectURL(new Blob([content], { type })), download: name });
  link.click();
  // Later, because the browser reads it after this call.
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

// Returns rows of cells as CSV.
function toCsv(columns, rows) {
  const quoted = (cell) => `"${String(cell ?? "").replaceAll('"', '""')}"`;
  const lines = [columns, ...rows].map((row) => `${row.map(quoted).join(",")}\r\n`);
  // The mark at the start tells spreadsheets that it is UTF-8.
  return `\ufeff${lines.join("")}`;
}

function saveTable(name, columns, rows) {
  saveFile(name, "text/csv", toCsv(columns, rows));
}
