// The page of words: the table, and the chosen word.

// `senses` has the chosen word's senses with the reader's choices; see words_choices.js.
const state = { column: null, down: false, word: null, senses: [], labels: [], sense: NO_SENSE, usage: -1 };
const rows = words.slice(0, page.data.ranked).map((word, index) => ({ ...word, index }));
const charts = {};
// Sentences for each sense and time.
const NEAREST = 3;
// Words on each side in the definition of a sense.
const DEFINING = 10;
const EARLIEST = 5;
// The charts on which a sense can stand out.
const OF_SENSES = ["map", "shares", "trend"];
// The usages to save, each as the index of its word and its own.
const citations = new Set();

function percent(share) {
  return `${Math.round(100 * share)} %`;
}

function perMillion(value) {
  return Number(value.toPrecision(3)).toLocaleString("en");
}

function cellText(value, kind) {
  if (value === null) return "";
  if (kind === "times") return `× ${value.toFixed(1)}`;
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
      const button = element("button", { type: "button", onclick: () => sortBy(index) }, name);
      // aria-sort says what the sign shows.
      button.append(element("span", { ariaHidden: "true" }, sign));
      return element("th", { scope: "col", className: style(kind, main), ariaSort: sorted }, button);
    }),
  );
}

function style(kind, main) {
  const look = { word: "word", text: "" }[kind] ?? "number";
  return `${look} ${main ? "" : "other"}`;
}

function isText(kind) {
  return ["word", "text"].includes(kind);
}

function sortBy(index) {
  const { kind, cells } = columns[index];
  const again = state.column === index;
  // Words, ranks and p-values are sorted in ascending order at first, other numbers in descending order.
  state.down = again ? !state.down : !(isText(kind) || ["rank", "p"].includes(kind));
  state.column = index;
  const sign = state.down ? -1 : 1;
  rows.sort((one, other) => {
    const [a, b] = [cells[one.index], cells[other.index]];
    if (a === null || b === null) return (a === null) - (b === null);
    return sign * (isText(kind) ? a.localeCompare(b) : a - b);
  });
  drawHeader();
  drawRows();
  byId("columns").children[index].firstChild.focus();
}

function wordCell(row) {
  const content = row.entry ? element("a", { href: `#${encodeURIComponent(row.word)}` }, row.word) : row.word;
  return element("th", { scope: "row", className: "word" }, content);
}

function drawRows() {
  const query = byId("search").value.trim().toLowerCase();
  const wanted = byId("of-verdict").value;
  const shown = rows.filter(({ word, entry }) => word.toLowerCase().includes(query) && (!wanted || hasVerdict(word, entry, wanted)));
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

// Tells whether a word has a sense with a verdict, with the reader's choices.
function hasVerdict(word, entry, wanted) {
  return Boolean(entry) && readSenses(word, entry).senses.some(({ verdict }) => verdict === wanted);
}

// The words without a score.
function drawUnranked() {
  if (!byId("unranked-rows")) return;
  const kinds = page.data.unranked;
  byId("unranked-rows").replaceChildren(
    ...words.slice(page.data.ranked).map((row, index) => {
      const cells = kinds.map(({ kind, cells }) =>
        kind === "word" ? wordCell(row) : element("td", { className: style(kind, true) }, cellText(cells[index], kind)),
      );
      const line = element("tr", {}, ...cells);
      if (page.data.ranked + index === state.word) line.setAttribute("aria-current", "true");
      return line;
    }),
  );
}

// One word ------------------------------------------------------------------------------------------------------------

// Creates a quotation: a box to choose it, its date and source, the sentence, and a button that takes it out of its
// sense.
function quotation(usage, about = [], note = "") {
  const { entry, word } = words[state.word];
  const id = `${state.word} ${usage}`;
  const box = element("input", { type: "checkbox", className: "cite no-print", value: id, ariaLabel: "Cite" });
  box.checked = citations.has(id);
  // A date may be the name of its time.
  const before = [...new Set([...about, entry.date[usage], entry.source[usage]])].filter(Boolean).join(", ");
  const [left, form, right] = entry.text[usage];
  const sentence = element("span", { className: "text" }, left, element("mark", {}, form), right);
  const toggle = () => changeChoices((choice) => toggleMisfiled(choice, usage));
  const button = element("button", { type: "button", className: "misfiled no-print", onclick: toggle }, "misfiled");
  button.setAttribute("aria-pressed", String(isMisfiled(optionChoice(word, entry), usage)));
  const parts = [box, ...(before ? [element("span", { className: "quiet small" }, `${before}: `)] : []), sentence];
  const tools = [button, ...(state.senses.length > 1 ? [" ", placeOf(usage)] : [])];
  return element("li", {}, ...parts, ...(note ? [element("span", { className: "quiet small" }, ` ${note}`)] : []), " ", ...tools);
}

// Creates the field that confirms the sense of a usage, or moves it to another one.
function placeOf(usage) {
  const { entry, word } = words[state.word];
  const { placed, merged } = optionChoice(word, entry);
  const names = state.senses.map(({ id, short }) => element("option", { value: id, label: short }));
  const select = element("select", { className: "place no-print", ariaLabel: "Its sense" });
  select.append(element("option", { value: "", label: "sense as found" }), ...names);
  select.value = usage in placed ? (merged[placed[usage]] ?? placed[usage]) : "";
  select.addEventListener("change", () => changeChoices((choice) => placeUsage(choice, usage, select.value)));
  return select;
}

function withInterval([value, low, high], write, unit) {
  if (low === null) return `${write(value)}${unit}`;
  return `${write(value)}${unit} (95 %: ${write(low)} to ${write(high)}${unit})`;
}

function chooseWord() {
  const name = decodeURIComponent(location.hash.slice(1));
  const named = words.findIndex(({ word, entry }) => entry && word === name);
  const index = named < 0 ? words.findIndex(({ entry }) => entry) : named;
  if (index === state.word) return;
  Object.assign(state, { word: index, usage: -1 });
  const { word, entry } = words[index];
  byId("chosen-word").textContent = word;
  byId("facts").textContent = factsOf(index);
  byId("sample").textContent = `In the sample: ${sampleOf(entry)}.`;
  byId("announced").textContent = `Showing ${word}`;
  const [across, up] = entry.variance.map(percent);
  byId("collocates").replaceChildren(...collocatesOf(entry));
  byId("of-collocates").hidden = !entry.collocates.some((found) => found.length);
  byId("variance").textContent =
    `The first two principal components of the vectors of all times, with ${across} and ${up ?? "0 %"} of the variance. ` +
    "Usages that are near each other here may differ in other directions.";
  byId("all-title").textContent = `All ${entry.x.length} usages in the sample`;
  byId("of-time").replaceChildren(...options(["all", ...times]));
  byId("number").replaceChildren(
    ...entry.options.map(({ keywords, silhouette, known }, option) => {
      const about = option ? `, silhouette ${silhouette.toFixed(2)}${chanceOf(entry.options[option])}` : "";
      const whose = known.length ? ", yours" : ", proposed";
      const proposed = option === entry.chosen ? whose : "";
      return element("option", { value: keywords.length }, `${keywords.length}${about}${proposed}`);
    }),
  );
  byId("is-whole").textContent = areSure(entry, earliestOf(entry, () => true))
    ? "These are the earliest of all usages in the texts, not only of the sample."
    : "These are the earliest that were read: the texts may have earlier ones (--max_attested).";
  showOtherSenses();
  drawRows();
  drawUnranked();
}

// Tells how likely the change of the shares of two senses is by chance.
function chanceOf({ p }) {
  return p === null ? "" : `, p ${p < 0.001 ? "below 0.001" : p.toFixed(3)}`;
}

function options(names, first = 0) {
  return names.map((text, index) => element("option", { value: index + first }, text));
}

function factsOf(index) {
  const ranked = index < page.data.ranked;
  const about = ranked ? columns.filter(({ main }) => main) : page.data.unranked;
  const row = ranked ? index : index - page.data.ranked;
  return about
    .filter(({ kind }) => kind !== "word")
    .map(({ name, kind, cells }) => [name, cellText(cells[row], kind)])
    .filter(([, text]) => text !== "")
    .map(([name, text]) => `${name}: ${text}`)
    .join(" · ");
}

// Tells the numbers of sampled usages and of their documents.
function sampleOf(entry) {
  const parts = times.map((time, index) => {
    const found = groupByDocument(entry, (usage) => entry.time[usage] === index);
    return `${time}: ${sum(found.map((usages) => usages.length))} usages in ${inDocuments(found.length)}`;
  });
  return parts.join(" · ");
}

function collocatesOf(entry) {
  const totals = times.map((_, time) => entry.x.filter((_, usage) => entry.time[usage] === time).length);
  return entry.collocates.flatMap((found, time) =>
    found.length
      ? [
          element("dt", {}, times[time]),
          element("dd", {}, found.map((one) => describeCollocate(one, totals[time])).join(", ")),
        ]
      : [],
  );
}

function describeCollocate([word, count, strength], total) {
  return `${word} (${count} of ${total}, × ${strength.toFixed(strength < 10 ? 1 : 0)})`;
}

// Shows the senses of the chosen word with the reader's choices. The focus stays, and so do the senses on the map and
// in the list.
function showSenses() {
  const { word, entry } = words[state.word];
  Object.assign(state, readSenses(word, entry));
  const { senses, counts } = state;
  const ids = senses.map(({ id }) => id);
  if (!ids.includes(state.sense)) state.sense = NO_SENSE;
  const listed = byId("of-sense").value;
  const focus = focusOf();
  byId("number").value = numberOf(word, entry);
  byId("word").classList.toggle("one-sense", senses.length === 1);
  byId("order").textContent = senses.length === 1 ? splitOf(entry) : orderOf(counts);
  byId("how-right").textContent = howRight(word, entry);
  byId("of-sense").replaceChildren(
    element("option", { value: "all" }, "all"),
    ...senses.map(({ id, title }) => element("option", { value: id }, title)),
    element("option", { value: NO_SENSE }, "misfiled"),
  );
  byId("of-sense").value = [...ids, NO_SENSE].map(String).includes(listed) ? listed : "all";
  const firsts = earliestOf(entry, () => true);
  byId("earliest").replaceChildren(...firsts.map((usage) => attestation(entry, usage)));
  byId("senses").replaceChildren(...senses.map((sense) => senseSection(entry, sense)));
  byId("forget-choices").hidden = !Object.hasOwn(choices, word);
  fillCharts(words[state.word]);
  showUsage();
  listUsages();
  focus();
}

// Returns a function that gives the focus to the field in the place of the focused one.
function focusOf() {
  const place = document.activeElement.closest("#earliest, #senses, #usage, #usages");
  const fields = () => [...place.querySelectorAll("button, input, select")];
  const index = place ? fields().indexOf(document.activeElement) : -1;
  return () => {
    if (index >= 0) fields().slice(0, index + 1).at(-1)?.focus();
  };
}

// Tells how a word of one sense is split into two, which a reader may choose.
function splitOf(entry) {
  const split = entry.options.find(({ keywords, known }) => keywords.length === 2 && !known.length);
  if (!split) return "";
  const found = times.map((_, time) => groupByDocument(entry, (usage) => entry.time[usage] === time));
  const parts = split.keywords.map((keywords, sense) => {
    const shares = sharesOf(found, countOf(found, (usage) => split.labels[usage] === sense)).filter(Boolean);
    return `${keywords.slice(0, 3).join(", ") || `Sense ${sense + 1}`} (${shares.map(([share]) => percent(share)).join(" > ")})`;
  });
  return `One sense. In two, which do not stand apart (silhouette ${split.silhouette.toFixed(2)}${chanceOf(split)}): ${parts.join("; ")}.`;
}

// Tells how right known senses are, and whose shares these are.
function howRight(word, entry) {
  const { right } = optionOf(word, entry);
  if (!right) return "";
  return `${right} ${state.isCorrected ? "" : "Since you moved usages or senses, shares are as counted, and not corrected."}`;
}

// Tells from which time to which the order of senses is.
function orderOf(counts) {
  const present = times.filter((_, time) => counts.some((row) => row[time]));
  return present.length > 1
    ? `The share of the first sense grew most from ${present[0]} to ${present.at(-1)}, and the share of the last sense shrank most.`
    : "The first sense has most usages, and the last one fewest.";
}

// Returns the five earliest usages that fulfil a condition, one from each text.
function earliestOf(entry, holds) {
  const found = new Map();
  for (const usage of entry.earliest.filter(holds)) {
    const text = entry.passage[usage];
    if (found.size < EARLIEST && !found.has(text)) found.set(text, usage);
  }
  return [...found.values()];
}

// Tells whether all usages in the texts that are older than these were read.
function areSure(entry, usages) {
  const sure = new Set(entry.earliest.slice(0, entry.sure));
  return usages.every((usage) => sure.has(usage));
}

// Creates the quotation of an early usage, with its time and how sure its sense is.
function attestation(entry, usage) {
  const near = entry.neighbours[usage] ?? [];
  const own = near.filter((other) => state.labels[other] === state.labels[usage]).length;
  const sense = state.senses.find(({ id }) => id === state.labels[usage]);
  const note = `(${sense?.label}, as ${own} of its ${near.length} nearest usages)`;
  return quotation(usage, [times[entry.time[usage]]], sense && state.senses.length > 1 ? note : "");
}

function inDocuments(number) {
  return `${number} document${number === 1 ? "" : "s"}`;
}

function senseSection(entry, sense) {
  const button = element("button", { type: "button", className: "show no-print of-senses", value: sense.id }, "Show on the map");
  button.setAttribute("aria-pressed", String(sense.id === state.sense));
  button.addEventListener("click", () => chooseSense(sense.id));
  const parts = times.map((time, index) => {
    const total = state.totals[index];
    const count = sense.counts[index];
    const where = `(in ${sense.documents[index]} of ${inDocuments(state.documents[index])})`;
    const interval = sense.shares[index];
    const written = interval ? withInterval(interval, (value) => Math.round(100 * value), " %") : "not to be counted";
    const share = total ? `${state.senses.length > 1 ? `${written}, ` : ""}${count} of ${total} usages ${where}` : "no usage";
    const nearest = nearestOf(entry, sense.id, index).map((usage) => quotation(usage));
    const heading = element("h5", {}, `${time}: ${share}`);
    const sentences = nearest.length ? [element("ul", { className: "sentences" }, ...nearest)] : [];
    return element("div", { role: "group", ariaLabel: time }, heading, ...sentences);
  });
  const said = sense.verdict ? [element("span", { className: "verdict small" }, sense.verdict)] : [];
  const title = element("div", { className: "title" }, element("h4", {}, sense.title), ...said, button);
  const firsts = earliestOf(entry, (usage) => state.labels[usage] === sense.id);
  const where = areSure(entry, firsts) ? "among all usages" : "among those that were read (--max_attested)";
  const about = `First attestations, ${where}`;
  return element(
    "article",
    { className: "sense", ariaLabel: sense.label },
    title,
    ...definition(entry, sense.id),
    senseTools(sense),
    element("div", { className: "times" }, ...parts),
    element("h5", { className: "of-senses" }, about),
    element(
      "ul",
      { className: "sentences firsts of-senses", ariaLabel: about },
      ...firsts.map((usage) => attestation(entry, usage)),
    ),
  );
}

// Creates the definition of a sense: the usage nearest to its middle, with at most ten words on each side.
function definition(entry, sense) {
  const { nearest } = optionOf(words[state.word].word, entry);
  const central = nearest.find((usage) => state.labels[usage] === sense);
  if (central === undefined) return [];
  const [left, form, right] = entry.text[central];
  const before = left.split(" ").slice(-DEFINING - 1).join(" ");
  const after = right.split(" ").slice(0, DEFINING + 1).join(" ");
  const cut = [before === left ? "" : "… ", after === right ? "" : " …"];
  const text = element("q", {}, cut[0], before, element("mark", {}, form), after, cut[1]);
  return [element("p", { className: "small definition of-senses" }, "Most central quotation: ", text)];
}

// Creates the fields that name a sense and merge it.
function senseTools(sense) {
  const name = element("input", { type: "text", value: sense.name, placeholder: "a name", autocomplete: "off" });
  name.addEventListener("change", () => changeChoices((choice) => nameSense(choice, sense.id, name.value), showSensesSoon));
  const others = state.senses.filter(({ id }) => id !== sense.id);
  const into = element("select", {}, element("option", { value: "" }, "no other"));
  into.append(...others.map(({ id, short }) => element("option", { value: id }, short)));
  into.addEventListener("change", () => changeChoices((choice) => mergeSenses(choice, sense.id, Number(into.value))));
  const tools = [element("label", {}, "Name ", name)];
  if (others.length) tools.push(element("label", {}, "Merge with ", into));
  if (sense.parts.length > 1) {
    const split = () => changeChoices((choice) => splitSense(choice, sense.id));
    tools.push(element("button", { type: "button", onclick: split }, "Split again"));
  }
  return element("p", { className: "tools small no-print" }, ...tools);
}

// Returns the usages nearest to the middle of a sense at a time, of different documents as far as there are enough. Each
// sentence is there once, even if it has the word twice.
function nearestOf(entry, sense, time) {
  const { nearest } = optionOf(words[state.word].word, entry);
  const sentences = new Set();
  const documents = new Set();
  const isNew = (found, value) => !found.has(value) && found.add(value);
  const own = nearest
    .filter((usage) => state.labels[usage] === sense && entry.time[usage] === time)
    .filter((usage) => isNew(sentences, entry.text[usage].join("")));
  const first = own.filter((usage) => isNew(documents, entry.document[usage]));
  return [...new Set([...first, ...own])].slice(0, NEAREST);
}

function chooseSense(sense) {
  state.sense = state.sense === sense ? NO_SENSE : sense;
  for (const button of document.querySelectorAll("#senses .show")) {
    button.setAttribute("aria-pressed", String(Number(button.value) === state.sense));
  }
  for (const name of OF_SENSES) charts[name]?.signal("sense", state.sense).run();
  byId("of-sense").value = state.sense === NO_SENSE ? "all" : state.sense;
  listUsages();
}

// The orders of the list of usages.
const ORDERS = {
  date: ({ earliest }) => {
    const place = new Map(earliest.map((usage, index) => [usage, index]));
    return (one, other) => place.get(one) - place.get(other);
  },
  left: ({ text }) => {
    const key = (usage) => lettersOf(text[usage][0]).split(" ").reverse().join(" ");
    return (one, other) => key(one).localeCompare(key(other));
  },
  right: ({ text }) => (one, other) => lettersOf(text[one][2]).localeCompare(lettersOf(text[other][2])),
};

// Returns a text without marks, so that they do not order it.
function lettersOf(text) {
  return text.replace(/[^\p{L}\p{N}\s]/gu, "").replace(/\s+/g, " ").trim().toLowerCase();
}

// Lists the usages of the sample of a time and a sense, once the list is open.
function listUsages() {
  if (!byId("all").open) return;
  const { entry } = words[state.word];
  const [time, sense] = [Number(byId("of-time").value), byId("of-sense").value];
  const shown = entry.x
    .map((_, usage) => usage)
    .filter((usage) => !time || entry.time[usage] === time - 1)
    .filter((usage) => sense === "all" || state.labels[usage] === Number(sense))
    .sort(ORDERS[byId("sort").value](entry));
  byId("usages").replaceChildren(...shown.map((usage) => describeUsage(entry, usage)));
}

function describeUsage(entry, usage) {
  const sense = state.senses.find(({ id }) => id === state.labels[usage]);
  return quotation(usage, [times[entry.time[usage]], sense ? sense.label : "misfiled"]);
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
    const [{ word, entry }, usage] = [words[id.split(" ")[0]], Number(id.split(" ")[1])];
    const { senses, labels } = readSenses(word, entry);
    const sense = senses.find(({ id }) => id === labels[usage]);
    const about = sense ? [sense.number, sense.name, sense.keywords.join(", ")] : ["misfiled", "", ""];
    return [word, ...about, entry.date[usage], entry.source[usage], times[entry.time[usage]], ...entry.text[usage]];
  });
  const names = ["word", "sense", "name", "keywords", "date", "source", "time", "left", "form", "right"];
  saveTable("citations.csv", names, rows);
}

// Choices -------------------------------------------------------------------------------------------------------------

// Changes the choices about the chosen number of senses of the chosen word, and shows them.
function changeChoices(change, show = showSenses) {
  const { word, entry } = words[state.word];
  change(optionChoice(word, entry, true));
  keepChoices();
  show();
}

// Shows the senses after the focus has moved from a text field, or the click has come that moved it: the field to which
// they go would be another one by then.
function showSensesSoon() {
  const show = () => setTimeout(showSenses);
  if (document.querySelector(":active")) document.addEventListener("mouseup", show, { once: true });
  else show();
}

function chooseNumber({ target }) {
  const { word } = words[state.word];
  choices[word] = { ...choices[word], number: Number(target.value) };
  keepChoices();
  showOtherSenses();
}

function beginSense() {
  changeChoices((choice) => {
    choice.added += 1;
  });
  byId("senses").lastElementChild.querySelector("input").focus();
}

function forgetChoices() {
  delete choices[words[state.word].word];
  keepChoices();
  showOtherSenses();
}

// Shows senses that replace all the shown ones.
function showOtherSenses() {
  state.sense = NO_SENSE;
  byId("of-sense").value = "all";
  showSenses();
}

async function loadChoices({ target }) {
  const [file] = target.files;
  if (!file) return;
  byId("choices-said").textContent = readChoices(await file.text());
  // The same file may be chosen again.
  target.value = "";
  showOtherSenses();
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

function fillCharts({ entry, frequency }) {
  const points = entry.x.map((x, index) => ({
    index,
    x,
    y: entry.y[index],
    time: times[entry.time[index]],
    sense: state.labels[index],
  }));
  const means = (state.senses.length === 1 ? [] : state.senses).flatMap(({ id, name, number }) => {
    const members = points.filter((point) => point.sense === id);
    const mean = (axis) => members.reduce((sum, point) => sum + point[axis], 0) / members.length;
    return members.length ? [{ name: name || number, x: mean("x"), y: mean("y") }] : [];
  });
  // Both directions of the map have one scale, so its height follows its data.
  state.tall = Math.max(0.4, ...entry.y.map(Math.abs));
  charts.map.data("usages", points).data("means", means).signal("tall", state.tall).signal("chosen", state.usage);
  const series = (values, index, name, write, groups = times) =>
    values.flatMap((interval, group) => {
      if (!interval) return [];
      const [value, low, high] = interval;
      const label = `${groups[group]}: ${withInterval([value, low, high], write, "")}`;
      return [{ series: name, index, time: groups[group], value, low: low ?? value, high: high ?? value, label }];
    });
  const shares = state.senses.flatMap(({ id, shares, short }) => series(shares, id, short, percent));
  fillShares("shares", shares);
  const trends = state.senses.flatMap(({ id, trend, short }) => series(trend, id, short, percent, spans));
  fillShares("trend", trends);
  for (const name of OF_SENSES) charts[name]?.signal("sense", state.sense);
  if (frequency) charts.frequency.data("rows", series(frequency, 0, "", perMillion));
  fitCharts();
}

// Fills a chart of shares, which is not shown if none are counted.
function fillShares(name, rows) {
  if (!charts[name]) return;
  byId(name).closest("figure").hidden = !rows.length;
  if (rows.length) charts[name].data("rows", rows);
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
  const { entry } = words[state.word];
  byId("usage").replaceChildren(
    ...(state.usage < 0
      ? [element("span", { className: "quiet small no-print" }, "Point at a usage, or step with the arrow keys, to read it.")]
      : [element("ul", { className: "sentences" }, describeUsage(entry, state.usage))]),
  );
}

// Steps from left to right through the usages, or through the usages of the chosen sense.
function stepUsage(event) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  const { entry } = words[state.word];
  const reached = entry.x
    .map((_, index) => index)
    .filter((index) => state.sense === NO_SENSE || state.labels[index] === state.sense)
    .sort((one, other) => entry.x[one] - entry.x[other]);
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
byId("of-verdict").addEventListener("change", drawRows);
byId("measures").addEventListener("change", ({ target }) => byId("words").classList.toggle("all", target.checked));
byId("rows").addEventListener("keydown", stepWord);
byId("map").addEventListener("keydown", stepUsage);
byId("all").addEventListener("toggle", listUsages);
for (const id of ["of-time", "of-sense", "sort"]) byId(id).addEventListener("change", listUsages);
document.addEventListener("change", cite);
byId("number").addEventListener("change", chooseNumber);
byId("new-sense").addEventListener("click", beginSense);
byId("save-choices").addEventListener("click", saveChoices);
byId("save-senses").addEventListener("click", saveSenses);
byId("load-choices").addEventListener("change", loadChoices);
byId("forget-choices").addEventListener("click", forgetChoices);
byId("save").addEventListener("click", saveCitations);
byId("forget").addEventListener("click", () => {
  citations.clear();
  showCitations();
});
window.addEventListener("hashchange", chooseWord);
window.addEventListener("resize", fitCharts);
makeCharts().then(chooseWord);
