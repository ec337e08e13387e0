// What the reader chooses about the senses of words: their number, names, merged senses, and misfiled usages. It stays
// in this browser, and goes out and in as a JSON file.

const { times, columns, words } = page.data;
const NO_SENSE = -1;
const STORE = `words ${page.data.id}`;
// By word: `number`, and for each number of senses `names` and `merged` (the sense that each merged one is part of), by
// sense, and `misfiled`, a list of usages.
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

function optionOf(word, entry) {
  const number = numberOf(word, entry);
  return entry.options.find(({ keywords }) => keywords.length === number) ?? entry.options[entry.chosen];
}

// Returns the choices about the senses of a word, at the chosen number of them; kept if they are `wanted` for a change.
function optionChoice(word, entry, wanted = false) {
  const number = numberOf(word, entry);
  const known = choices[word]?.[number] ?? { names: {}, merged: {}, misfiled: [] };
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
  choice.names[into] ||= choice.names[from] ?? "";
}

function splitSense(choice, sense) {
  for (const [part, whole] of Object.entries(choice.merged)) if (whole === sense) delete choice.merged[part];
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
// `counts` by sense and time, `totals` by time. Misfiled usages have no sense and count nowhere.
function readSenses(word, entry) {
  const { labels: found, keywords } = optionOf(word, entry);
  const choice = optionChoice(word, entry);
  const out = new Set(choice.misfiled);
  const labels = found.map((sense, usage) => (out.has(usage) ? NO_SENSE : (choice.merged[sense] ?? sense)));
  const senses = keywords
    .map((_, id) => id)
    .filter((id) => !(id in choice.merged))
    .map((id) => {
      const parts = keywords.map((_, part) => part).filter((part) => (choice.merged[part] ?? part) === id);
      const name = choice.names[id] ?? "";
      const number = parts.map((part) => part + 1).join(" + ");
      // The keywords of merged senses in turn.
      const most = Math.max(...keywords.map((list) => list.length));
      const inTurn = [...Array(most).keys()].flatMap((place) => parts.map((part) => keywords[part][place]));
      const shown = [...new Set(inTurn.filter(Boolean))].slice(0, Math.max(5, parts.length));
      const counts = times.map(
        (_, time) => entry.x.filter((_, usage) => labels[usage] === id && entry.time[usage] === time).length,
      );
      const label = name || `Sense ${number}`;
      return {
        ...{ id, parts, name, number, label, counts, keywords: shown },
        title: shown.length ? `${label}: ${shown.join(", ")}` : label,
        // On a chart there is little room.
        short: name || (shown.length ? `${label}: ${shown.slice(0, 3).join(", ")}` : label),
      };
    });
  const counts = senses.map((sense) => sense.counts);
  const totals = times.map((_, time) => counts.reduce((sum, row) => sum + row[time], 0));
  return { senses, labels, counts, totals };
}

// Returns a share and the ends of its 95 % interval (Wilson).
function wilson(count, total) {
  const [share, z] = [count / total, 1.959964];
  const middle = share + z ** 2 / (2 * total);
  const half = z * Math.sqrt((share * (1 - share)) / total + z ** 2 / (4 * total ** 2));
  const scale = 1 + z ** 2 / total;
  return [share, Math.max(0, (middle - half) / scale), Math.min(1, (middle + half) / scale)];
}
