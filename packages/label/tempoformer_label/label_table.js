// The table of posts that goes out with the labels, and comes in again.

// Returns the cells of each row. A changed post has the name of the person who labels, others keep theirs.
function labelledRows() {
  return rows.map((row, index) => {
    if (!(index in changed)) return row;
    const { label, note } = changed[index];
    const cells = [...row];
    cells[CELLS.label] = classes[label]?.name ?? "";
    cells[CELLS.cannotSay] = label === CANNOT_SAY ? page.data.cannot_say.cell : "";
    cells[CELLS.note] = note;
    if (label !== NONE || note) cells[CELLS.annotator] = annotator.trim() || row[CELLS.annotator];
    return cells;
  });
}

// Names the file after who labels, once.
function fileName() {
  const { name } = page.data;
  const who = annotator.trim() || "labelled";
  const isNamed = name.endsWith(who) && !/[\p{L}\p{N}]$/u.test(name.slice(0, name.length - who.length));
  return `${(isNamed ? name : `${name}_${who}`).replace(/[^\p{L}\p{N} ._-]+/gu, "_")}.csv`;
}

let file = null; // that the browser lets the page write

// Saves the table: in the file that the person chooses, which is written again the next time, or among the downloads.
// Returns words about it.
async function saveLabels() {
  const content = toCsv(columns, labelledRows());
  const name = fileName();
  try {
    if (!window.showSaveFilePicker) throw new TypeError("no files");
    file ??= await showSaveFilePicker({ suggestedName: name, types: [{ accept: { "text/csv": [".csv"] } }] });
    const writable = await file.createWritable();
    await writable.write(content);
    await writable.close();
  } catch (problem) {
    if (problem.name === "AbortError") return "Not saved.";
    file = null;
    saveFile(name, "text/csv", content);
  }
  isSaved = true;
  keep();
  return file ? `Saved: ${file.name}.` : `Saved among your downloads: ${name}.`;
}

// Reads the rows of a CSV file, whose cells a spreadsheet may have separated otherwise.
function fromCsv(text) {
  const content = text.replace(/^\ufeff/, "");
  const head = content.slice(0, content.search(/[\r\n]|$/)).replace(/"[^"]*("|$)/g, "");
  const separator = [",", ";", "\t", "|"].reduce((best, one) => (head.split(one).length > head.split(best).length ? one : best));
  const cell = new RegExp(`("[^"]*(?:""[^"]*)*"|[^${separator}\\r\\n]*)(${separator === "|" ? "\\|" : separator}|\\r?\\n|\\r|$)`, "y");
  const lines = [[]];
  for (let match; cell.lastIndex < content.length && (match = cell.exec(content)); ) {
    const [, found, end] = match;
    lines.at(-1).push(found.startsWith('"') ? found.slice(1, -1).replaceAll('""', '"') : found);
    if (end !== separator) lines.push([]);
  }
  const [names, ...cells] = lines.filter((line) => line.length);
  return { names: names ?? [], cells };
}

// A post is the same in a file if its timeline and text are; the second of the same ones is the second in the file.
function keysOf(timelineIds, texts) {
  const seen = new Map();
  // Spreadsheets write line breaks in their own way.
  return texts.map((text, row) => {
    const key = JSON.stringify([timelineIds[row], text.replace(/\r\n?/g, "\n")]);
    seen.set(key, (seen.get(key) ?? 0) + 1);
    return `${seen.get(key)} ${key}`;
  });
}

// Takes the labels and notes of a file that was saved here. Returns words about it.
function takeLabels(text) {
  const { names, cells } = fromCsv(text);
  const at = (name) => names.indexOf(name);
  if (at("timeline_id") < 0 || at("text") < 0 || at("label") < 0) {
    return "This is not a file that was saved here: it has no columns timeline_id, text and label.";
  }
  const values = (name) => cells.map((row) => row[at(name)] ?? "");
  const own = (name) => rows.map((row) => row[column(name)]);
  const place = new Map(keysOf(own("timeline_id"), own("text")).map((key, row) => [key, row]));
  const asked = new Set(stretches.flatMap((_, index) => rowsOf(index)));
  const [taken, unknown] = [[], new Set()];
  let elsewhere = 0;
  keysOf(values("timeline_id"), values("text")).forEach((key, line) => {
    const cellsOf = { label: cells[line][at("label")], cannotSay: cells[line][at("cannot_say")], note: cells[line][at("note")] ?? "" };
    const read = answerOf(cellsOf);
    const row = place.get(key);
    if (cellsOf.label && read.label === NONE) unknown.add(cellsOf.label);
    if (read.label === NONE && !read.note) return;
    if (row === undefined) elsewhere += 1;
    else if (asked.has(row)) taken.push([row, read]);
  });
  give(taken);
  const words = [`Read ${plural(taken.length, "answer")}.`];
  if (elsewhere) words.push(`${plural(elsewhere, "answer")} are of posts that are not here.`);
  if (unknown.size) words.push(`Labels that are not classes here: ${[...unknown].join(", ")}.`);
  return words.join(" ");
}
