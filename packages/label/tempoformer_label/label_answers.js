// The answers of the person who labels: the label and the note of each post, what they were before, and what the browser
// keeps. An answer's label is the number of a class, CANNOT_SAY, or NONE.

const { classes, columns, rows, timelines, stretches } = page.data;
const NONE = -1;
const CANNOT_SAY = -2;
const STORE = `label ${page.data.id}`;
const column = (name) => columns.indexOf(name);
const CELLS = { label: column("label"), cannotSay: column("cannot_say"), note: column("note"), annotator: column("annotator") };

// The answer that a row of the file has.
function answerOf(cells) {
  const label = classes.findIndex(({ name }) => name === cells.label);
  return { label: label === NONE && cells.cannotSay === page.data.cannot_say.cell ? CANNOT_SAY : label, note: cells.note };
}

const inFile = rows.map((row) =>
  answerOf(Object.fromEntries(Object.entries(CELLS).map(([name, place]) => [name, row[place]]))),
);
let changed = {}; // answers that differ from the file's, by row
let annotator = "";
let lastRow = null; // at which the person was
let isSaved = true;
const steps = []; // lists of rows with the answers that they had before

function answer(row) {
  return changed[row] ?? inFile[row];
}

function isDone(row) {
  return answer(row).label !== NONE;
}

function isSame(one, other) {
  return one.label === other.label && one.note === other.note;
}

function setAnswer(row, given) {
  if (isSame(given, inFile[row])) delete changed[row];
  else changed[row] = given;
}

// Gives answers, a list of rows with answers, as one step that can be undone.
function give(answers) {
  const news = answers.filter(([row, given]) => !isSame(given, answer(row)));
  if (!news.length) return;
  steps.push(news.map(([row]) => [row, answer(row)]));
  for (const [row, given] of news) setAnswer(row, given);
  isSaved = false;
  keep();
}

// Takes the last step back. Returns its rows, none without a step.
function undoStep() {
  const before = steps.pop() ?? [];
  for (const [row, given] of before) setAnswer(row, given);
  if (before.length) isSaved = false;
  keep();
  return before.map(([row]) => row);
}

// Keeps the answers in the browser. Where it keeps nothing, the person is told so, and asked before the page closes.
let keeps = true;

function keep() {
  try {
    localStorage.setItem(STORE, JSON.stringify({ changed, annotator, lastRow, isSaved }));
    keeps = true;
  } catch {
    keeps = false;
  }
}

function readKept() {
  try {
    const kept = JSON.parse(localStorage.getItem(STORE)) ?? {};
    ({ changed = {}, annotator = annotator, lastRow = null, isSaved = true } = kept);
  } catch {
    keeps = false;
  }
}

addEventListener("beforeunload", (event) => {
  if (!keeps && !isSaved) event.preventDefault();
});
