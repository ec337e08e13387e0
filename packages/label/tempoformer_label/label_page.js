// The page on which posts are labelled: one stretch with its context, keys, and what is said of each step.

const MORE = 50; // posts of the context that a press shows
const CANNOT_SAY_KEY = page.data.cannot_say.key;
const given = new Map(page.data.given.map(({ row, by }) => [row, by]));
const state = { stretch: 0, row: null, context: page.data.context };

// ---- What is labelled

function shown() {
  return timelines[stretches[state.stretch].timeline];
}

// Returns the rows that a stretch asks about.
function rowsOf(index) {
  const { timeline, posts } = stretches[index];
  return posts.map((post) => timelines[timeline].rows[post]);
}

function positionOf(row) {
  return shown().rows.indexOf(row);
}

function isOpen(index) {
  return rowsOf(index).some((row) => !isDone(row));
}

function stretchOf(row) {
  return stretches.findIndex((_, index) => rowsOf(index).includes(row));
}

// Returns the first stretch with an open post after one, from the start if there is none after it; -1 if all are done.
function nextOpen(index) {
  const all = [...stretches.keys()];
  return [...all.slice(index + 1), ...all.slice(0, index + 1)].find(isOpen) ?? NONE;
}

function labelWords(row) {
  const { label } = answer(row);
  return label === CANNOT_SAY ? "cannot say" : (classes[label]?.name ?? "no label");
}

// ---- One stretch

function headOf(post) {
  const { times, silences, speakers, rows: own } = shown();
  const gap = times && post ? times[post] - times[post - 1] : 0;
  const parts = [`Post ${post + 1}`];
  if (times) parts.push(moment(times[post]));
  if (speakers?.[post]) parts.push(element("bdi", { className: "speaker" }, speakers[post]));
  if (gap && !silences.includes(post)) parts.push(`${duration(gap)} later`);
  const head = element("p", { className: "post-head", id: `head-${own[post]}` });
  parts.forEach((part, index) => head.append(...(index ? [" · ", part] : [part])));
  return head;
}

function textOf(row) {
  const text = element("p", { className: "post-text", dir: "auto", id: `text-${row}` }, rows[row][column("text")]);
  if (!text.textContent.trim()) text.replaceChildren(element("span", { className: "quiet" }, "(no text)"));
  return text;
}

function contextItem(post) {
  const row = shown().rows[post];
  const head = headOf(post);
  if (isDone(row)) head.append(` · labelled ${labelWords(row)}`);
  return element("li", { className: "context" }, head, textOf(row));
}

function choice(row, label, name, keys) {
  const input = element("input", { type: "radio", name: `label-${row}`, value: String(label), checked: answer(row).label === label });
  input.setAttribute("aria-keyshortcuts", keys.join(" "));
  const hint = element("kbd", {}, keys.join(" "));
  hint.ariaHidden = "true";
  return element("label", { className: "choice" }, input, element("bdi", {}, name), ...(keys.length ? [" ", hint] : []));
}

function choices(row) {
  const all = classes.map(({ name, keys }, label) => choice(row, label, name, keys));
  all.push(choice(row, CANNOT_SAY, "cannot say", [CANNOT_SAY_KEY]));
  const described = given.has(row) ? `text-${row} given-${row}` : `text-${row}`;
  const group = element("div", { className: "choices", role: "radiogroup" }, ...all);
  group.setAttribute("aria-labelledby", `head-${row}`);
  group.setAttribute("aria-describedby", described);
  return group;
}

function givenLabels(row) {
  const items = given.get(row).map(({ annotator: name, label, note }) => {
    const words = [label && element("strong", {}, label), label && note && ": ", note].filter(Boolean);
    return element("li", {}, element("bdi", {}, name), ": ", element("span", { dir: "auto" }, ...words));
  });
  return element("ul", { className: "given", id: `given-${row}` }, ...items);
}

function noteLine(row) {
  const { note } = answer(row);
  const button = element("button", { type: "button", className: "small note-button" }, note ? "Change the note" : "Note");
  button.setAttribute("aria-keyshortcuts", "Enter");
  button.addEventListener("click", () => openNote(row));
  const text = note ? [element("span", { className: "note", dir: "auto" }, note)] : [];
  return element("div", { className: "note-line" }, ...text, button);
}

function targetItem(post) {
  const row = shown().rows[post];
  const about = given.has(row) ? [givenLabels(row)] : [];
  const own = element("div", { className: "answer" }, choices(row), noteLine(row));
  const item = element("li", { className: "target" }, headOf(post), textOf(row), ...about, own);
  item.dataset.row = row;
  return item;
}

function itemOf(row) {
  return byId("posts").querySelector(`[data-row="${row}"]`);
}

function showStretch(index) {
  if (index !== state.stretch) state.context = page.data.context;
  state.stretch = index;
  const { posts } = stretches[index];
  const { id, times, silences, rows: own } = shown();
  const [first, last] = [posts[0], posts.at(-1)];
  const from = Math.max(0, first - state.context);
  const items = [];
  if (from) {
    const button = element("button", { type: "button", id: "earlier" }, `Show ${Math.min(from, MORE)} of ${plural(from, "earlier post")}`);
    button.addEventListener("click", showEarlier);
    items.push(element("li", { className: "earlier no-print" }, button));
  }
  const asked = new Set(posts);
  for (let post = from; post <= last; post++) {
    if (silences.includes(post)) {
      items.push(element("li", { className: "silence" }, `${duration(times[post] - times[post - 1])} later`));
    }
    items.push(asked.has(post) ? targetItem(post) : contextItem(post));
  }
  byId("posts").replaceChildren(...items);
  const range = posts.length > 1 ? `posts ${first + 1} to ${last + 1}` : `post ${first + 1}`;
  byId("where").replaceChildren(`Stretch ${index + 1} of ${stretches.length}: `, element("bdi", {}, id), `, ${range} of ${own.length}`);
  byId("previous").disabled = index === 0;
  byId("next").disabled = byId("next-below").disabled = index === stretches.length - 1;
}

// The post that was read stays where it is on the screen.
function showEarlier() {
  const before = itemOf(state.row).getBoundingClientRect().top;
  state.context += MORE;
  showStretch(state.stretch);
  mark(state.row);
  (byId("earlier") ?? radioOf(state.row)).focus({ preventScroll: true });
  scrollBy(0, itemOf(state.row).getBoundingClientRect().top - before);
}

function showProgress() {
  const all = [...stretches.keys()].map(rowsOf);
  const done = all.flat().filter(isDone).length;
  const closed = all.filter((own) => own.every(isDone)).length;
  const number = all.flat().length;
  Object.assign(byId("progress"), { max: number, value: done });
  byId("done").textContent = `${plainNumber(closed)} of ${plural(stretches.length, "stretch").replace(/hs$/, "hes")}, ${plainNumber(done)} of ${plural(number, "post")}`;
  byId("undo").disabled = !steps.length;
  byId("save").textContent = isSaved ? "Save" : "Save *";
  byId("save").title = isSaved ? "" : "There are changes that no file has.";
}

function say(words) {
  byId("said").textContent = keeps ? words : `${words} This browser keeps nothing of this page: save often.`;
}

// ---- The current post

function radioOf(row) {
  return itemOf(row).querySelector("input:checked") ?? itemOf(row).querySelector("input");
}

function mark(row) {
  state.row = lastRow = row;
  for (const item of byId("posts").querySelectorAll("[aria-current]")) item.removeAttribute("aria-current");
  itemOf(row).setAttribute("aria-current", "true");
}

// Moves to a post, and scrolls so that what came before it can be read above it.
function goTo(row) {
  const index = rowsOf(state.stretch).includes(row) ? state.stretch : stretchOf(row);
  if (index !== state.stretch || !itemOf(row)) showStretch(index);
  mark(row);
  radioOf(row).focus({ preventScroll: true });
  const box = itemOf(row).getBoundingClientRect();
  const bar = document.querySelector(".bar").getBoundingClientRect().height;
  const room = Math.max(0, innerHeight - bar - box.height);
  scrollBy(0, box.top - bar - Math.min(room, (innerHeight - bar) / 3));
  keep();
}

// Draws a post again after its answer has changed, with the focus where it was.
function redraw(row) {
  const item = itemOf(row);
  if (!item) return;
  const hadFocus = item.contains(document.activeElement);
  item.replaceWith(targetItem(positionOf(row)));
  if (row === state.row) mark(row);
  if (hadFocus) radioOf(row).focus({ preventScroll: true });
  showProgress();
}

function setLabel(row, label) {
  give([[row, { ...answer(row), label }]]);
  redraw(row);
}

function postName(row) {
  const index = stretchOf(row);
  return `Post ${timelines[stretches[index].timeline].rows.indexOf(row) + 1}`;
}

// Labels the current post, and goes to the next one without a label: in this stretch, else in the next open one.
function label(number) {
  const row = state.row;
  setLabel(row, number);
  const own = rowsOf(state.stretch);
  const place = own.indexOf(row);
  const said = `${postName(row)}: ${labelWords(row)}.`;
  let next = [...own.slice(place + 1), ...own.slice(0, place)].find((other) => !isDone(other));
  const other = next === undefined ? nextOpen(state.stretch) : state.stretch;
  if (other === NONE) {
    goTo(row);
    say(`${said} All posts are done: save the file.`);
    return;
  }
  next ??= rowsOf(other).find((open) => !isDone(open));
  const change = other === state.stretch ? "" : ` Stretch ${other + 1}.`;
  goTo(next);
  say(said + change);
}

function clearLabel() {
  setLabel(state.row, NONE);
  say(`${postName(state.row)}: no label.`);
}

function undo() {
  const undone = undoStep();
  if (!undone.length) {
    say("There is nothing to undo.");
    return;
  }
  showStretch(stretchOf(undone[0]));
  goTo(undone[0]);
  showProgress();
  say(undone.length > 1 ? `Undone: ${plural(undone.length, "post")}.` : `Undone. ${postName(undone[0])}: ${labelWords(undone[0])}.`);
}

function movePost(step) {
  const own = rowsOf(state.stretch);
  const place = own.indexOf(state.row) + step;
  if (place in own) goTo(own[place]);
  else if (place < 0) moveStretch(-1, "last");
  else moveStretch(1);
}

function moveStretch(step, end = "first") {
  const index = state.stretch + step;
  if (!(index in stretches)) {
    say(step < 0 ? "This is the first stretch." : "This is the last stretch.");
    return;
  }
  const own = rowsOf(index);
  goTo(end === "last" ? own.at(-1) : (own.find((row) => !isDone(row)) ?? own[0]));
  say(`Stretch ${index + 1} of ${stretches.length}.`);
}

// ---- Notes

function openNote(row) {
  mark(row);
  const before = answer(row);
  const area = element("textarea", { rows: 2, value: before.note, dir: "auto", ariaLabel: `Note on ${postName(row).toLowerCase()}` });
  const hint = element("span", { className: "small quiet" }, "Escape ends it.");
  itemOf(row).querySelector(".note-line").replaceChildren(area, hint);
  // Kept at each key, and undone as a whole.
  area.addEventListener("input", () => {
    setAnswer(row, { ...answer(row), note: area.value });
    isSaved = false;
    keep();
  });
  area.addEventListener("blur", () => {
    const note = area.value.trim();
    setAnswer(row, before);
    give([[row, { ...before, note }]]);
    redraw(row);
    showProgress();
    if (note !== before.note) say(`${postName(row)}: note ${note ? "written" : "deleted"}.`);
  });
  area.focus();
}

function closeNote(area) {
  const row = state.row;
  area.blur();
  radioOf(row).focus({ preventScroll: true });
}

// ---- Keys and the start

const KEYS = new Map(classes.flatMap(({ keys }, number) => keys.map((key) => [key, () => label(number)])));
KEYS.set(CANNOT_SAY_KEY, () => label(CANNOT_SAY));
KEYS.set("?", () => byId("keys").showModal());
KEYS.set("ArrowDown", () => movePost(1));
KEYS.set("ArrowUp", () => movePost(-1));
KEYS.set("Backspace", undo);
KEYS.set("Delete", clearLabel);
KEYS.set("Enter", () => openNote(state.row));

function onKey(event) {
  const { target, key } = event;
  if (byId("keys").open) return;
  const writes = target.matches("textarea, input[type=text]");
  if ((event.ctrlKey || event.metaKey) && !event.altKey) {
    if (key.toLowerCase() === "s") saveNow();
    else if (key.toLowerCase() === "z" && !writes) undo();
    else if (key === "Enter" && target.matches("textarea")) closeNote(target);
    else return;
    event.preventDefault();
    return;
  }
  if (writes) {
    if (key === "Escape" && target.matches("textarea")) closeNote(target);
    else if (["Enter", "Escape"].includes(key) && target.matches("input")) goTo(state.row);
    return;
  }
  // Some keyboards write signs with AltGr.
  if (event.altKey && key.length > 1) return;
  const isPressed = key === "Enter" && target.matches("button, summary, a, input[type=file]");
  const isScrolled = key.startsWith("Arrow") && target.matches(".guideline");
  const does = event.shiftKey && key === "ArrowDown" ? () => moveStretch(1)
    : event.shiftKey && key === "ArrowUp" ? () => moveStretch(-1)
    : KEYS.get(key.length === 1 ? key.toLowerCase() : key);
  if (!does || isPressed || isScrolled) return;
  event.preventDefault();
  // A key that is held down labels one post.
  if (!event.repeat || key.startsWith("Arrow")) does();
}

async function saveNow() {
  say(await saveLabels());
  showProgress();
}

function showKeys() {
  const lines = classes.map(({ name, keys }) => [keys.join(" or ") || "arrow keys", element("bdi", {}, name)]);
  lines.push(
    [CANNOT_SAY_KEY, "cannot say: the post stays without a label"],
    ["↓ ↑", "next post, previous post"],
    ["Shift ↓ Shift ↑", "next stretch, previous stretch"],
    ["Enter", "write a note; Escape ends it"],
    ["Delete", "take the label away"],
    ["Backspace or Ctrl Z", "undo the last step"],
    ["Ctrl S", "save the file"],
    ["← →", "choose a label without going on"],
    ["?", "these keys"],
  );
  const rowOf = ([keys, does]) => element("tr", {}, element("th", { scope: "row" }, element("kbd", {}, keys)), element("td", {}, does));
  byId("keys-table").append(...lines.map(rowOf));
}

function listen() {
  document.addEventListener("keydown", onKey);
  byId("posts").addEventListener("change", (event) => {
    if (!event.target.matches("input")) return;
    setLabel(state.row, Number(event.target.value));
    say(`${postName(state.row)}: ${labelWords(state.row)}.`);
  });
  for (const kind of ["focusin", "click"]) {
    byId("posts").addEventListener(kind, (event) => {
      const item = event.target.closest(".target");
      if (item && itemOf(item.dataset.row) === item) mark(Number(item.dataset.row));
    });
  }
  byId("previous").addEventListener("click", () => moveStretch(-1));
  for (const id of ["next", "next-below"]) byId(id).addEventListener("click", () => moveStretch(1));
  byId("undo").addEventListener("click", undo);
  byId("save").addEventListener("click", saveNow);
  byId("show-keys").addEventListener("click", () => byId("keys").showModal());
  byId("annotator").addEventListener("input", (event) => {
    annotator = event.target.value;
    isSaved = !Object.keys(changed).length;
    keep();
    showProgress();
  });
  byId("open").addEventListener("change", async (event) => {
    const [chosen] = event.target.files;
    if (!chosen) return;
    const words = takeLabels(await chosen.text());
    event.target.value = "";
    begin();
    say(words);
  });
  // Another window with the same page.
  addEventListener("storage", (event) => {
    if (event.key !== STORE || document.activeElement.matches("textarea")) return;
    readKept();
    steps.length = 0;
    begin();
  });
}

// Goes to the post at which the person was, if it is open, else to the first open one.
function begin() {
  byId("annotator").value = annotator;
  const open = stretches.flatMap((_, index) => rowsOf(index)).filter((row) => !isDone(row));
  const row = open.includes(lastRow) ? lastRow : (open[0] ?? rowsOf(0)[0]);
  showStretch(stretchOf(row));
  goTo(row);
  showProgress();
}

function start() {
  const names = new Set(rows.map((row) => row[CELLS.annotator]).filter(Boolean));
  if (names.size === 1 && !given.size) [annotator] = names;
  readKept();
  // The page scrolls to the post itself.
  history.scrollRestoration = "manual";
  const guideline = byId("guideline");
  if (guideline) guideline.open = matchMedia("(min-width: 900px)").matches;
  showKeys();
  listen();
  begin();
  say(byId("done").textContent + ". Press ? for the keys.");
}

start();
