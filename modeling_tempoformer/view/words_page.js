// The table of words, and what is shown of the chosen one.

const { times, columns, words } = page.data;
const state = { column: null, down: false, word: null, sense: -1, usage: -1 };
const rows = words.map((word, index) => ({ ...word, index }));
const charts = {};

function percent(share) {
  return `${Math.round(100 * share)} %`;
}

function cellText(value, kind) {
  if (value === null) return "";
  if (kind === "p" && value < 0.001) return "<0.001";
  if (kind === "interval") return value.map((end) => end.toFixed(3)).join(" to ");
  if (kind === "score" || kind === "p") return value.toFixed(3);
  return String(value);
}

// The table -----------------------------------------------------------------------------------------------------------

function drawHeader() {
  byId("columns").replaceChildren(
    ...columns.map(({ name, kind }, index) => {
      const sorted = state.column === index ? (state.down ? "descending" : "ascending") : "none";
      const sign = { none: "", ascending: " ▲", descending: " ▼" }[sorted];
      const button = element("button", { type: "button", onclick: () => sortBy(index) }, name + sign);
      const style = kind === "word" ? "word" : "number";
      return element("th", { scope: "col", className: style, ariaSort: sorted }, button);
    }),
  );
}

function sortBy(index) {
  const { kind } = columns[index];
  const again = state.column === index;
  // Words, ranks and p-values begin with the first or smallest, other numbers with the largest.
  state.down = again ? !state.down : !["word", "rank", "p"].includes(kind);
  state.column = index;
  const sign = state.down ? -1 : 1;
  const key = ({ cells }) => (Array.isArray(cells[index]) ? cells[index][0] : cells[index]);
  rows.sort((one, other) => {
    const [a, b] = [key(one), key(other)];
    if (a === null || b === null) return (a === null) - (b === null);
    return sign * (kind === "word" ? a.localeCompare(b) : a - b);
  });
  drawHeader();
  drawRows();
  byId("columns").children[index].firstChild.focus();
}

function wordCell(row) {
  const content = row.usages ? element("a", { href: `#${encodeURIComponent(row.word)}` }, row.word) : row.word;
  return element("th", { scope: "row", className: "word" }, content);
}

function drawRows() {
  const query = byId("search").value.trim().toLowerCase();
  const shown = rows.filter(({ word }) => word.toLowerCase().includes(query));
  byId("rows").replaceChildren(
    ...shown.map((row) => {
      const cells = columns.map(({ kind }, index) =>
        kind === "word" ? wordCell(row) : element("td", { className: "number" }, cellText(row.cells[index], kind)),
      );
      const line = element("tr", {}, ...cells);
      if (row.index === state.word) line.setAttribute("aria-current", "true");
      return line;
    }),
  );
  byId("found").textContent = `${shown.length} of ${rows.length} words`;
}

// One word ------------------------------------------------------------------------------------------------------------

function sentence(text) {
  const [before, word, after] = text;
  return [before, element("mark", {}, word), after];
}

function senseName(sense) {
  return `Sense ${sense + 1}`;
}

function shareOf(usages, sense, time) {
  const total = usages.counts.reduce((sum, counts) => sum + counts[time], 0);
  return { share: usages.counts[sense][time] / total, total };
}

function chooseWord() {
  const name = decodeURIComponent(location.hash.slice(1));
  const found = words.findIndex(({ word, usages }) => usages && word === name);
  const index = found < 0 ? words.findIndex(({ usages }) => usages) : found;
  if (index === state.word) return;
  Object.assign(state, { word: index, sense: -1, usage: -1 });
  const { word, cells, usages } = words[index];
  byId("chosen-word").textContent = word;
  byId("facts").textContent = columns
    .map(({ name, kind }, column) => [name, kind, cellText(cells[column], kind)])
    .filter(([, kind, text]) => kind !== "word" && text)
    .map(([name, , text]) => `${name} ${text}`)
    .join(" · ");
  byId("announced").textContent = `Showing ${word}`;
  const [across, up] = usages.variance.map(percent);
  byId("variance").textContent =
    `The directions in which the vectors of all times differ most (PCA): they have ${across} and ${up} of the ` +
    "variance, so that usages that are near each other here may differ otherwise.";
  const senses = usages.counts.length;
  const all = usages.counts.flat().reduce((sum, count) => sum + count, 0);
  const shown = usages.text.length;
  byId("all-title").textContent =
    shown === all ? `All ${all} usages` : `${shown} of the ${all} usages, those on the map`;
  const options = (names, every) => [every, ...names].map((text, value) => element("option", { value }, text));
  byId("of-time").replaceChildren(...options(times, "all"));
  byId("of-sense").replaceChildren(...options(usages.counts.map((_, sense) => senseName(sense)), "all"));
  byId("senses").replaceChildren(...Array.from({ length: senses }, (_, sense) => senseSection(usages, sense)));
  fillCharts(usages);
  showUsage();
  listUsages();
  drawRows();
}

function senseSection(usages, sense) {
  const shares = times.map((_, time) => shareOf(usages, sense, time));
  const button = element("button", { type: "button", className: "no-print", onclick: () => chooseSense(sense) });
  button.textContent = "Show on the map";
  button.setAttribute("aria-pressed", "false");
  const ends = `${percent(shares[0].share)} to ${percent(shares[shares.length - 1].share)}`;
  const parts = times.map((time, index) => {
    const count = usages.counts[sense][index];
    const found = usages.nearest[sense][index].map((usage) => element("li", {}, ...sentence(usages.text[usage])));
    return element(
      "div",
      {},
      element("h5", {}, `${time}: ${percent(shares[index].share)} (${count} of ${shares[index].total})`),
      found.length ? element("ul", { className: "sentences" }, ...found) : element("p", { className: "quiet" }, "no usage"),
    );
  });
  const title = element("div", { className: "title" }, element("h4", {}, `${senseName(sense)}: ${ends}`), button);
  return element("article", { className: "sense" }, title, element("div", { className: "times" }, ...parts));
}

function chooseSense(sense) {
  state.sense = state.sense === sense ? -1 : sense;
  byId("senses")
    .querySelectorAll("button")
    .forEach((button, index) => button.setAttribute("aria-pressed", String(index === state.sense)));
  byId("of-sense").value = String(state.sense + 1);
  listUsages();
  charts.map.signal("sense", state.sense).run();
  if (state.sense >= 0) byId("map").scrollIntoView({ block: "nearest" });
}

function listUsages() {
  const { usages } = words[state.word];
  const [time, sense] = ["of-time", "of-sense"].map((id) => Number(byId(id).value) - 1);
  const shown = !byId("all").open
    ? []
    : usages.text.map((_, index) => index).filter(
        (index) =>
          (time < 0 || usages.time[index] === time) && (sense < 0 || usages.sense[index] === sense),
      );
  byId("usages").replaceChildren(...shown.map((index) => element("li", {}, ...describeUsage(usages, index))));
}

function describeUsage(usages, index) {
  const where = `${times[usages.time[index]]}, ${senseName(usages.sense[index]).toLowerCase()}: `;
  return [element("span", { className: "quiet small" }, where), ...sentence(usages.text[index])];
}

// Charts --------------------------------------------------------------------------------------------------------------

async function makeCharts() {
  const names = ["map", "shares", ...(byId("curve") ? ["curve"] : [])];
  for (const name of names) charts[name] = await draw(name, byId(name));
  for (const kind of ["mouseover", "click"]) {
    charts.map.addEventListener(kind, (event, item) => {
      if (item && item.datum && "index" in item.datum) chooseUsage(item.datum.index);
    });
  }
}

function fillCharts(usages) {
  const points = usages.text.map((_, index) => ({
    index,
    x: usages.x[index],
    y: usages.y[index],
    time: times[usages.time[index]],
    sense: usages.sense[index],
  }));
  const means = usages.counts.map((_, sense) => {
    const members = points.filter((point) => point.sense === sense);
    const mean = (axis) => members.reduce((sum, point) => sum + point[axis], 0) / members.length;
    return { name: String(sense + 1), x: mean("x"), y: mean("y") };
  });
  const shares = usages.counts.flatMap((_, sense) =>
    times.map((time, index) => {
      const { share } = shareOf(usages, sense, index);
      return { sense: senseName(sense), time, share, label: `${percent(share)}  ${time}` };
    }),
  );
  charts.map.data("usages", points).data("means", means).signal("sense", -1).signal("chosen", -1);
  // The words behind the longest bar stand in the plot too.
  charts.shares.data("shares", shares).signal("reach", 1.7 * Math.max(...shares.map(({ share }) => share)));
  if (charts.curve) {
    const curve = usages.curve.map(([value, low, high], index) => {
      const interval = low === null ? "" : `, 95 % interval ${cellText([low, high], "interval")}`;
      return { time: times[index], value, low, high, label: `${times[index]}: ${cellText(value, "score")}${interval}` };
    });
    charts.curve.data("curve", curve);
  }
  fitCharts();
}

async function fitCharts() {
  for (const [name, view] of Object.entries(charts)) await fitWidth(view, byId(name));
  // A map has one scale.
  charts.map.height(charts.map.width()).run();
}

function chooseUsage(index) {
  if (index === state.usage) return;
  state.usage = index;
  charts.map.signal("chosen", index).run();
  showUsage();
}

function showUsage() {
  const { usages } = words[state.word];
  byId("usage").replaceChildren(
    ...(state.usage < 0
      ? [element("span", { className: "quiet small no-print" }, "Point at a usage, or step with the arrow keys, to read it.")]
      : describeUsage(usages, state.usage)),
  );
}

// Steps through the usages from left to right, those of the chosen sense if there is one.
function stepUsage(event) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  const { usages } = words[state.word];
  const reached = usages.x
    .map((_, index) => index)
    .filter((index) => state.sense < 0 || usages.sense[index] === state.sense)
    .sort((one, other) => usages.x[one] - usages.x[other]);
  const place = reached.indexOf(state.usage) + step;
  chooseUsage(reached[Math.max(0, Math.min(reached.length - 1, place))]);
}

// The arrow keys go from word to word.
function stepWord(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const links = [...byId("rows").querySelectorAll("a")];
  const place = links.indexOf(document.activeElement);
  if (!step || place < 0) return;
  event.preventDefault();
  const next = links[place + step];
  if (next) next.focus();
}

drawHeader();
drawRows();
byId("search").addEventListener("input", drawRows);
if (words.some(({ usages }) => usages)) {
  byId("rows").addEventListener("keydown", stepWord);
  byId("map").addEventListener("keydown", stepUsage);
  byId("all").addEventListener("toggle", listUsages);
  for (const id of ["of-time", "of-sense"]) byId(id).addEventListener("change", listUsages);
  window.addEventListener("hashchange", chooseWord);
  window.addEventListener("resize", fitCharts);
  makeCharts().then(chooseWord);
}
