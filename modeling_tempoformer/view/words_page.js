// The page of words: the table, and the chosen word.

const { times, columns, words } = page.data;
const state = { column: null, down: false, word: null, sense: -1, usage: -1 };
const rows = words.map((word, index) => ({ ...word, index }));
const charts = {};
// The usages to save, each as the index of its word, the name of its list, and its index there.
const citations = new Set();

function percent(share) {
  return `${Math.round(100 * share)} %`;
}

function perMillion(value) {
  return Number(value.toPrecision(3)).toLocaleString("en");
}

function cellText(value, kind) {
  if (value === null) return "";
  if (kind === "sure") return value ? "yes" : "no";
  if (kind === "p" && value < 0.001) return "<0.001";
  if (kind === "score" || kind === "p") return value.toFixed(3);
  if (kind === "frequency") return perMillion(value);
  if (kind === "points") return value.toFixed(1);
  return String(value);
}

// The table -----------------------------------------------------------------------------------------------------------

function drawHeader() {
  byId("columns").replaceChildren(
    ...columns.map(({ name, kind, main }, index) => {
      const sorted = state.column === index ? (state.down ? "descending" : "ascending") : "none";
      const sign = { none: "", ascending: " ▲", descending: " ▼" }[sorted];
      const button = element("button", { type: "button", onclick: () => sortBy(index) }, name + sign);
      return element("th", { scope: "col", className: style(kind, main), ariaSort: sorted }, button);
    }),
  );
}

function style(kind, main) {
  return `${kind === "word" ? "word" : "number"} ${main ? "" : "other"}`;
}

function sortBy(index) {
  const { kind, cells } = columns[index];
  const again = state.column === index;
  // Words, ranks and p-values are sorted in ascending order at first, other numbers in descending order.
  state.down = again ? !state.down : !["word", "rank", "p"].includes(kind);
  state.column = index;
  const sign = state.down ? -1 : 1;
  rows.sort((one, other) => {
    const [a, b] = [cells[one.index], cells[other.index]];
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
      const cells = columns.map(({ kind, main, cells }) =>
        kind === "word" ? wordCell(row) : element("td", { className: style(kind, main) }, cellText(cells[row.index], kind)),
      );
      const line = element("tr", {}, ...cells);
      if (row.index === state.word) line.setAttribute("aria-current", "true");
      return line;
    }),
  );
  byId("found").textContent = `${shown.length} of ${rows.length} words`;
}

// One word ------------------------------------------------------------------------------------------------------------

// Creates a quotation: a box to choose it, its date and source, and the sentence.
function quotation(usages, index, ...before) {
  const id = `${state.word} ${usages === words[state.word].earliest ? "earliest" : "usages"} ${index}`;
  const box = element("input", { type: "checkbox", className: "cite no-print", value: id, ariaLabel: "Cite" });
  box.checked = citations.has(id);
  const about = [...before, usages.date[index], usages.source[index]].filter(Boolean).join(", ");
  const [left, form, right] = usages.text[index];
  const sentence = element("span", { className: "text" }, left, element("mark", {}, form), right);
  return element("li", {}, box, ...(about ? [element("span", { className: "quiet small" }, `${about}: `)] : []), sentence);
}

function senseName({ keywords }, sense) {
  return keywords[sense].length ? `Sense ${sense + 1}: ${keywords[sense].join(", ")}` : `Sense ${sense + 1}`;
}

// Names a sense on a chart, where there is little room.
function shortName({ keywords }, sense) {
  return senseName({ keywords: keywords.map((all) => all.slice(0, 3)) }, sense);
}

function withInterval([value, low, high], write, unit) {
  return `${write(value)}${unit} (95 %: ${write(low)} to ${write(high)}${unit})`;
}

function chooseWord() {
  const name = decodeURIComponent(location.hash.slice(1));
  const named = words.findIndex(({ word, usages }) => usages && word === name);
  const index = named < 0 ? words.findIndex(({ usages }) => usages) : named;
  if (index === state.word) return;
  Object.assign(state, { word: index, sense: -1, usage: -1 });
  const { word, usages, earliest } = words[index];
  byId("chosen-word").textContent = word;
  byId("facts").textContent = columns
    .filter(({ kind, main }) => main && kind !== "word")
    .map(({ name, kind, cells }) => `${name}: ${cellText(cells[index], kind)}`)
    .join(" · ");
  byId("announced").textContent = `Showing ${word}`;
  const [across, up] = usages.variance.map(percent);
  const collocates = times.map((time, index) => [time, usages.collocates[index].join(", ")]).filter(([, list]) => list);
  byId("collocates").textContent = collocates.length
    ? `Within ten words of it more often than at other times: ${collocates.map((pair) => pair.join(": ")).join(" · ")}`
    : "";
  byId("variance").textContent =
    `The first two principal components of the vectors of all times, with ${across} and ${up} of the variance. ` +
    "Usages that are near each other here may differ in other directions.";
  byId("all-title").textContent = `All ${usages.text.length} usages`;
  const options = (names, every) => [every, ...names].map((text, value) => element("option", { value }, text));
  const senses = usages.counts.map((_, sense) => senseName(usages, sense));
  byId("word").classList.toggle("one-sense", senses.length === 1);
  byId("of-time").replaceChildren(...options(times, "all"));
  byId("of-sense").replaceChildren(...options(senses, "all"));
  byId("earliest").replaceChildren(...earliest.text.map((_, index) => quotation(earliest, index)));
  byId("of-corpus").hidden = !earliest.text.length;
  byId("senses").replaceChildren(...senses.map((title, sense) => senseSection(usages, sense, title)));
  fillCharts(words[index]);
  showUsage();
  listUsages();
  drawRows();
}

function senseSection(usages, sense, name) {
  const button = element("button", { type: "button", className: "no-print of-senses", onclick: () => chooseSense(sense) });
  button.textContent = "Show on the map";
  button.setAttribute("aria-pressed", "false");
  const parts = times.map((time, index) => {
    const count = usages.counts[sense][index];
    const total = usages.counts.reduce((sum, counts) => sum + counts[index], 0);
    const share = withInterval(usages.shares[sense][index], (value) => Math.round(100 * value), " %");
    const nearest = usages.nearest[sense][index].map((usage) => quotation(usages, usage));
    return element(
      "div",
      {},
      element("h5", {}, `${time}: ${share}, ${count} of ${total}`),
      nearest.length ? element("ul", { className: "sentences" }, ...nearest) : element("p", { className: "quiet" }, "no usage"),
    );
  });
  const title = element("div", { className: "title" }, element("h4", {}, name), button);
  return element("article", { className: "sense" }, title, element("div", { className: "times" }, ...parts));
}

function chooseSense(sense) {
  state.sense = state.sense === sense ? -1 : sense;
  byId("senses")
    .querySelectorAll(".title button")
    .forEach((button, index) => button.setAttribute("aria-pressed", String(index === state.sense)));
  byId("of-sense").value = String(state.sense + 1);
  listUsages();
  for (const name of ["map", "shares"]) charts[name].signal("sense", state.sense).run();
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
  byId("usages").replaceChildren(...shown.map((index) => describeUsage(usages, index)));
}

function describeUsage(usages, index) {
  return quotation(usages, index, times[usages.time[index]], `sense ${usages.sense[index] + 1}`);
}

// Citations -----------------------------------------------------------------------------------------------------------

function cite({ target }) {
  if (!target.matches(".cite")) return;
  if (target.checked) citations.add(target.value);
  else citations.delete(target.value);
  showCitations();
}

// Updates all boxes, because a usage may be in several lists.
function showCitations() {
  for (const box of document.querySelectorAll(".cite")) box.checked = citations.has(box.value);
  const many = citations.size;
  byId("citations").hidden = !many;
  byId("save").textContent = `Save ${many} citation${many === 1 ? "" : "s"} as CSV`;
}

function saveCitations() {
  const rows = [...citations].map((id) => {
    const [wordIndex, list, index] = id.split(" ");
    const { word, [list]: usages } = words[wordIndex];
    const about = [usages.date[index], usages.source[index], times[usages.time[index]]];
    // Only usages of the sample have a sense.
    const sense = usages.sense ? [usages.sense[index] + 1, usages.keywords[usages.sense[index]].join(", ")] : ["", ""];
    return [word, ...sense, ...about, ...usages.text[index]];
  });
  const names = ["word", "sense", "keywords", "date", "source", "time", "left", "form", "right"];
  const quoted = (cell) => `"${String(cell).replaceAll('"', '""')}"`;
  const lines = [names, ...rows].map((row) => `${row.map(quoted).join(",")}\r\n`);
  // The mark at the start tells spreadsheets that it is UTF-8.
  saveFile("citations.csv", "text/csv", `\ufeff${lines.join("")}`);
}

// Charts --------------------------------------------------------------------------------------------------------------

async function makeCharts() {
  for (const name of Object.keys(page.charts)) {
    // A legend cannot be empty.
    const rows = [{ series: "", index: 0, time: times[0], value: 0, low: 0, high: 0 }];
    charts[name] = await draw(name, byId(name), { rows });
    const save = () => saveChart(charts[name], `${words[state.word].word}_${name}`);
    byId(name).after(element("button", { type: "button", className: "save no-print", onclick: save }, "Save as SVG"));
  }
  for (const kind of ["mouseover", "click"]) {
    charts.map.addEventListener(kind, (event, item) => {
      if (item && item.datum && "index" in item.datum) chooseUsage(item.datum.index);
    });
  }
}

function fillCharts({ usages, frequency }) {
  const points = usages.text.map((_, index) => ({
    index,
    x: usages.x[index],
    y: usages.y[index],
    time: times[usages.time[index]],
    sense: usages.sense[index],
  }));
  const senses = usages.counts.length === 1 ? [] : usages.counts;
  const means = senses.map((_, sense) => {
    const members = points.filter((point) => point.sense === sense);
    const mean = (axis) => members.reduce((sum, point) => sum + point[axis], 0) / members.length;
    return { name: String(sense + 1), x: mean("x"), y: mean("y") };
  });
  // Both directions of the map have one scale, so its height follows its data.
  state.tall = Math.max(0.4, ...usages.y.map(Math.abs));
  charts.map.data("usages", points).data("means", means).signal("tall", state.tall).signal("sense", -1).signal("chosen", -1);
  const series = (values, index, name, write) =>
    values.map(([value, low, high], time) => {
      const label = `${times[time]}: ${withInterval([value, low, high], write, "")}`;
      return { series: name, index, time: times[time], value, low, high, label };
    });
  const shares = usages.shares.flatMap((shares, sense) => series(shares, sense, shortName(usages, sense), percent));
  charts.shares.data("rows", shares).signal("sense", -1);
  if (frequency) charts.frequency.data("rows", series(frequency, 0, "", perMillion));
  fitCharts();
}

async function fitCharts() {
  for (const [name, view] of Object.entries(charts)) await fitWidth(view, byId(name));
  charts.map.height((charts.map.width() * (state.tall + 0.05)) / 1.05).run();
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
      : [element("ul", { className: "sentences" }, describeUsage(usages, state.usage))]),
  );
}

// Steps from left to right through the usages, or through those of the chosen sense.
function stepUsage(event) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  const { usages } = words[state.word];
  const reached = usages.x
    .map((_, index) => index)
    .filter((index) => state.sense < 0 || usages.sense[index] === state.sense)
    .sort((one, other) => usages.x[one] - usages.x[other]);
  const next = reached.indexOf(state.usage) + step;
  chooseUsage(reached[Math.max(0, Math.min(reached.length - 1, next))]);
}

// The arrow keys go from word to word.
function stepWord(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const links = [...byId("rows").querySelectorAll("a")];
  const index = links.indexOf(document.activeElement);
  if (!step || index < 0) return;
  event.preventDefault();
  const next = links[index + step];
  if (next) next.focus();
}

drawHeader();
drawRows();
byId("search").addEventListener("input", drawRows);
byId("measures").addEventListener("change", ({ target }) => byId("words").classList.toggle("all", target.checked));
byId("rows").addEventListener("keydown", stepWord);
byId("map").addEventListener("keydown", stepUsage);
byId("all").addEventListener("toggle", listUsages);
for (const id of ["of-time", "of-sense"]) byId(id).addEventListener("change", listUsages);
document.addEventListener("change", cite);
byId("save").addEventListener("click", saveCitations);
byId("forget").addEventListener("click", () => {
  citations.clear();
  showCitations();
});
window.addEventListener("hashchange", chooseWord);
window.addEventListener("resize", fitCharts);
makeCharts().then(chooseWord);
