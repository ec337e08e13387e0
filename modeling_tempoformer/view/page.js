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

// Draws a chart as SVG in an element. `data` holds rows by the name of a data set. Returns a promise of its view, for
// `view.data(name, rows)`, `view.signal(name, value)` and `view.run()`.
async function draw(name, into, data = {}) {
  const chart = page.charts[name];
  const sets = chart.data.map((set) => (set.name in data ? { ...set, values: data[set.name] } : set));
  // 1: errors alone. That a data set is still empty is no news.
  const options = { mode: "vega", renderer: "svg", actions: false, defaultStyle: false, tooltip: false, logLevel: 1 };
  return (await vegaEmbed(into, { ...chart, data: sets }, options)).view;
}

// Saves a chart as SVG, in the colours that the page has now.
async function saveSvg(view, name) {
  const style = getComputedStyle(document.documentElement);
  const colour = (_, variable) => style.getPropertyValue(variable).trim();
  const svg = (await view.toSVG()).replace(/var\((--[\w-]+)\)/g, colour);
  const href = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  element("a", { href, download: `${name.replace(/[^\p{L}\p{N}-]+/gu, "_")}.svg` }).click();
}

// Makes a chart as wide as its element, or its plot `least` pixels wide if that is more. The words of the axis on its
// left may take another room at the new width, so it is measured twice. What stands on the right gets `RIGHT` pixels.
const RIGHT = 12;

async function fitWidth(view, into, least = 0) {
  for (let round = 0; round < 2; round++) {
    await view.runAsync();
    const plot = into.querySelector(".mark-group .background").getBoundingClientRect();
    const before = plot.left - into.querySelector("svg").getBoundingClientRect().left;
    view.width(Math.floor(Math.max(into.clientWidth - before - RIGHT, least, 50)));
  }
  await view.runAsync();
}
