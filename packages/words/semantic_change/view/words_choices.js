// The choices of the reader about the senses of words: their number, names, merged senses, usages that were placed in a
// sense, and misfiled ones. They stay in this browser, and go out and in as a JSON file. The senses go out as a table,
// which the next run reads (--senses).

const { times, spans, columns, words } = page.data;
const NO_SENSE = -1;
// So many usages stand for a sense without texts of its own in the table of senses.
const QUOTED = 10;
// The normal quantile of a 95 % interval.
const NORMAL = 1.959964;
const STORE = `words ${page.data.id}`;
// By word: `number`, and for each number of senses `added`, how many senses the reader began, `names` and `merged` (the
// sense that each merged one is part of), by sense, `placed`, the sense of each usage that the reader moved or confirmed,
// and `misfiled`, a list of usages.
let choices = {};

try {
  choices = JSON.parse(localStorage.getItem(STORE)) ?? {};
} catch {
  // The browser keeps nothing for this page.
}

function keepChoices() {
  try {
    localStorage.setItem(STORE, JSON.stringify(choices));
    byId("choices-said").textContent = "";
  } catch {
    byId("choices-said").textContent = "This browser does not keep your choices: save them before you close the page.";
  }
}

function saveChoices() {
  saveFile("choices.json", "application/json", JSON.stringify({ page: page.data.id, words: choices }, null, 2));
}

// Takes the choices of a file in the place of this page's. Returns a sentence about it.
function readChoices(text) {
  let read;
  try {
    read = JSON.parse(text);
  } catch {
    return "This file is not JSON: choose one that was saved here.";
  }
  if (read?.page !== page.data.id) return "These choices are of another page: its usages or its senses differ from these.";
  choices = read.words;
  keepChoices();
  return `Choices about ${Object.keys(choices).length} words.`;
}

function numberOf(word, entry) {
  return choices[word]?.number ?? entry.options[entry.chosen].keywords.length;
}

// Returns the senses of a word at the chosen number of them. Those that the reader began come last.
function optionOf(word, entry) {
  const number = numberOf(word, entry);
  const option = entry.options.find(({ keywords }) => keywords.length === number) ?? entry.options[entry.chosen];
  const keywords = [...option.keywords, ...Array(optionChoice(word, entry).added).fill([])];
  return { ...option, keywords, names: keywords.map((_, sense) => option.names[sense] ?? "") };
}

// Returns the choices about the senses of a word, at the chosen number of them; kept if they are `wanted` for a change.
function optionChoice(word, entry, wanted = false) {
  const number = numberOf(word, entry);
  const known = { added: 0, names: {}, merged: {}, placed: {}, misfiled: [], ...choices[word]?.[number] };
  if (wanted) choices[word] = { ...choices[word], number, [number]: known };
  return known;
}

function nameSense(choice, sense, name) {
  choice.names[sense] = name.trim();
}

// Merges two senses, with all their parts, into the first of them.
function mergeSenses(choice, one, other) {
  const [into, from] = [Math.min(one, other), Math.max(one, other)];
  for (const [part, whole] of Object.entries(choice.merged)) if (whole === from) choice.merged[part] = into;
  choice.merged[from] = into;
  // A known sense keeps its name.
  if (choice.names[from]) choice.names[into] ||= choice.names[from];
}

function splitSense(choice, sense) {
  for (const [part, whole] of Object.entries(choice.merged)) if (whole === sense) delete choice.merged[part];
}

// Places a usage in a sense; "" leaves it where the program put it.
function placeUsage(choice, usage, sense) {
  if (sense === "") delete choice.placed[usage];
  else choice.placed[usage] = Number(sense);
  choice.misfiled = choice.misfiled.filter((other) => other !== usage);
}

function isMisfiled(choice, usage) {
  return choice.misfiled.includes(usage);
}

function toggleMisfiled(choice, usage) {
  choice.misfiled = isMisfiled(choice, usage)
    ? choice.misfiled.filter((other) => other !== usage)
    : [...choice.misfiled, usage];
}

// Returns the senses of a word with the reader's choices, the sense of each usage, and the numbers of sampled usages:
// `counts` by sense and time, `totals` by time. Misfiled usages have no sense and count nowhere. Each sense has, by time,
// its `shares` with intervals, and `documents`, the number of documents that have it; its `trend`, shares by decade or
// year; and its `verdict`. Shares of known senses are the corrected ones of the run until the reader moves a usage or a
// sense. A share that is not to be counted is null, and so is that of the only sense.
function readSenses(word, entry) {
  const { labels: found, keywords, names, shares: corrected } = optionOf(word, entry);
  const choice = optionChoice(word, entry);
  const out = new Set(choice.misfiled);
  const placed = found.map((sense, usage) => choice.placed[usage] ?? sense);
  const labels = placed.map((sense, usage) => (out.has(usage) ? NO_SENSE : (choice.merged[sense] ?? sense)));
  const grouped = (groups, place) =>
    groups.map((_, group) => groupByDocument(entry, (usage) => labels[usage] !== NO_SENSE && place[usage] === group));
  const documents = grouped(times, entry.time);
  const bySpan = grouped(spans, entry.span);
  const totals = documents.map((found) => found.flat().length);
  const isMoved = choice.added || choice.misfiled.length || [choice.placed, choice.merged].some((part) => Object.keys(part).length);
  const isCorrected = corrected && !isMoved;
  const isOnly = keywords.length - Object.keys(choice.merged).length === 1;
  const senses = keywords
    .map((_, id) => id)
    .filter((id) => !(id in choice.merged))
    .map((id) => {
      const parts = keywords.map((_, part) => part).filter((part) => (choice.merged[part] ?? part) === id);
      const name = choice.names[id] ?? names[id];
      const number = parts.map((part) => part + 1).join(" + ");
      // The keywords of merged senses in turn.
      const most = Math.max(...keywords.map((list) => list.length));
      const inTurn = [...Array(most).keys()].flatMap((place) => parts.map((part) => keywords[part][place]));
      const shown = [...new Set(inTurn.filter(Boolean))].slice(0, Math.max(5, parts.length));
      const own = countOf(documents, (usage) => labels[usage] === id);
      const counts = own.map(sum);
      const count = (groups, part) => (isOnly ? groups.map(() => null) : sharesOf(groups, part));
      const shares = isCorrected ? corrected.times[id] : count(documents, own);
      const trend = isCorrected ? corrected.spans[id] : count(bySpan, countOf(bySpan, (usage) => labels[usage] === id));
      const label = name || `Sense ${number}`;
      return {
        ...{ id, parts, name, number, label, counts, shares, trend, keywords: shown },
        verdict: isOnly ? "" : verdictOf(shares[0], shares.at(-1)),
        documents: own.map((found) => found.filter(Boolean).length),
        title: shown.length ? `${label}: ${shown.join(", ")}` : label,
        // On a chart there is little room.
        short: name || (shown.length ? `${label}: ${shown.slice(0, 3).join(", ")}` : label),
      };
    });
  const counts = senses.map((sense) => sense.counts);
  return { senses, labels, counts, totals, isCorrected, documents: documents.map((found) => found.length) };
}

// Returns the rows of the table of senses, of all words with choices or with known senses: the texts that the run was
// given, and the usages that the reader placed. A sense without texts has usages from its middle to its edge, because the
// next run learns from them how far apart its usages are.
function tableOfSenses() {
  return words.flatMap(({ word, entry, texts }) => {
    if (!entry || !(texts.length || choices[word])) return texts.map((row) => [word, ...row]);
    const { senses, labels } = readSenses(word, entry);
    const { names, nearest, known } = optionOf(word, entry);
    const choice = optionChoice(word, entry);
    const quote = (usage) => {
      const [left, form, right] = entry.text[usage];
      return [left + form + right, [...left].length];
    };
    // A quotation that the reader moved or marked as misfiled is no longer one of the sense that it was given.
    const isSame = ([text, start], [other, place]) => text === other && (start ?? place) === place;
    const moved = [...Object.keys(choice.placed).map(Number), ...choice.misfiled].map(quote);
    return senses.flatMap(({ id, parts, name, label }) => {
      const given = texts
        .filter(([sense, ...row]) => parts.some((part) => names[part] === sense) && !moved.some((other) => isSame(row, other)))
        .map(([, ...row]) => row);
      const placed = Object.keys(choice.placed).map(Number).filter((usage) => labels[usage] === id);
      // What fits no known sense is a sense once the reader says so.
      const isWanted = !known.length || parts.some((part) => known[part]) || name !== names[id] || placed.length;
      const own = uniqueRows([...given, ...placed.map(quote)]);
      const stand = spread(uniqueRows(nearest.filter((usage) => labels[usage] === id).map(quote)), QUOTED);
      return isWanted ? (own.length ? own : stand).map((row) => [word, label, ...row]) : [];
    });
  });
}

// Returns so many of the rows, at even distances, the first and the last among them.
function spread(rows, number) {
  if (rows.length <= number) return rows;
  return [...Array(number).keys()].map((place) => rows[Math.floor((place * (rows.length - 1)) / (number - 1))]);
}

function uniqueRows(rows) {
  return [...new Map(rows.map((row) => [JSON.stringify(row), row])).values()];
}

function saveSenses() {
  saveTable("known_senses.csv", ["word", "sense", "text", "start"], tableOfSenses());
}

function sum(numbers) {
  return numbers.reduce((total, number) => total + number, 0);
}

// Returns the sampled usages that fulfil a condition, as a list for each document.
function groupByDocument(entry, holds) {
  const found = new Map();
  for (const usage of entry.x.keys()) {
    const own = entry.document[usage];
    if (holds(usage)) found.set(own, [...(found.get(own) ?? []), usage]);
  }
  return [...found.values()];
}

// Returns the number of usages that fulfil a condition, by group and document.
function countOf(documents, holds) {
  return documents.map((found) => found.map((usages) => usages.filter(holds).length));
}

// Returns for each group of documents the share of some of their usages, with its interval; null without usages.
function sharesOf(documents, counts) {
  const sizes = documents.map((found) => found.map((usages) => usages.length));
  const totals = sizes.map(sum);
  const effects = designEffects(counts, sizes);
  return totals.map((total, group) => (total ? wilson(sum(counts[group]), total, effects[group]) : null));
}

// Returns the `design_effects` of measures.py, from the numbers of usages by time and document: for each time how many
// times as large the variance of a share is as for independent usages, because usages in one document are alike; null if
// each time has one document. The page has the quantiles of the t distribution by its degrees of freedom, from 1.
function designEffects(counts, sizes) {
  const freedom = sum(sizes.map((list) => Math.max(list.length - 1, 0)));
  if (!freedom) return sizes.map(() => null);
  let [squares, variance, pairs] = [0, 0, 0];
  sizes.forEach((list, time) => {
    if (list.length < 2) return;
    const share = sum(counts[time]) / sum(list);
    const residuals = list.map((size, document) => (counts[time][document] - share * size) ** 2);
    squares += (list.length / (list.length - 1)) * sum(residuals);
    variance += share * (1 - share) * sum(list);
    pairs += share * (1 - share) * sum(list.map((size) => size * (size - 1)));
  });
  const estimate = pairs ? (squares - variance) / pairs : 0;
  const likeness = variance === 0 ? 1 : Math.min(Math.max(estimate, 0), 1);
  const factor = (page.data.quantiles[freedom - 1] / NORMAL) ** 2;
  return sizes.map((list) => factor * (1 + (likeness * sum(list.map((size) => size * (size - 1)))) / Math.max(sum(list), 1)));
}

// Returns what became of a sense, from its share and the ends of its interval at the first and at the last time: the
// `verdict` of sense_shares.py, with the interval of a difference by Newcombe.
function verdictOf(first, last) {
  if (!first || !last || first[1] === null || last[1] === null) return "cannot be told";
  const change = last[0] - first[0];
  const low = change - Math.hypot(last[0] - last[1], first[2] - first[0]);
  const high = change + Math.hypot(last[2] - last[0], first[0] - first[1]);
  const { absent, nearly, little } = page.data.verdicts;
  const isAbsent = ([share, least]) => least <= absent && share <= nearly;
  if (low > 0) return isAbsent(first) ? "gained" : "more";
  if (high < 0) return isAbsent(last) ? "lost" : "less";
  return -little < low && high < little ? "kept" : "cannot be told";
}

// Returns a share and the ends of its 95 % interval (Wilson), for the number of independent usages that tell as much. The
// ends are null if the effect of documents is not known.
function wilson(count, total, effect) {
  const [share, size, z] = [count / total, total / effect, NORMAL];
  if (effect === null) return [share, null, null];
  const middle = share + z ** 2 / (2 * size);
  const half = z * Math.sqrt((share * (1 - share)) / size + z ** 2 / (4 * size ** 2));
  const scale = 1 + z ** 2 / size;
  return [share, Math.max(0, (middle - half) / scale), Math.min(1, (middle + half) / scale)];
}
