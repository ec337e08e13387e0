// The page of timelines: the settings, the list, one timeline, and why.

const { names, timelines } = page.data;
const AT_ONCE = 50; // timelines in the list
const NARROWEST_POST = 7; // pixels, by position
const LEAST_REACH = 0.05; // of the axis of effects
const STRONGEST = 5; // earlier posts, before all are shown
const isLabelled = timelines.some((timeline) => timeline.actual.some((label) => label >= 0));
const isTimed = timelines.some((timeline) => timeline.times);

const state = {
  watched: page.data.watched,
  threshold: page.data.thresholds[page.data.watched],
  timeline: 0,
  current: 0, // the post that is pointed at
  chosen: 0, // the post that is explained
  axis: isTimed ? "time" : "position",
  search: "",
  listed: AT_ONCE,
};
let counts = []; // of each timeline
let views = {}; // of the charts, by name

// ---- The settings and what they count

function recount() {
  counts = timelines.map((timeline) => countTimeline(timeline, state.watched, state.threshold));
}

function showSettings() {
  byId("watched").value = String(state.watched);
  byId("threshold").value = byId("threshold-number").value = String(state.threshold / UNIT);
  byId("threshold").setAttribute("aria-valuetext", String(state.threshold / UNIT));
  byId("rule").textContent =
    `An alarm is a post where the probability of ${names[state.watched]} is at least ${state.threshold / UNIT}.` +
    (isLabelled ? "" : " These posts have no labels, so alarms can be counted but not judged.");
}

function scoreRows(count) {
  const found = count.delays.filter((delay) => delay !== null).length;
  const rows = { posts: plainNumber(count.posts), alarms: plainNumber(count.alarms) };
  if (!isLabelled) return rows;
  return {
    ...rows,
    precision: share(count.hits, count.judged),
    recall: share(count.hits, count.ofClass),
    "median delay": medianDelay(count.delays),
    "runs found": count.delays.length ? `${plainNumber(found)} of ${plainNumber(count.delays.length)}` : "–",
  };
}

function showScores() {
  if (!timelines.length) return;
  const here = scoreRows(counts[state.timeline]);
  const all = scoreRows(addCounts(counts));
  const rows = Object.keys(here).map((name) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, name),
      element("td", { className: "number" }, here[name]),
      element("td", { className: "number of-all" }, all[name]),
    ),
  );
  byId("scores").tBodies[0].replaceChildren(...rows);
}

function changeThreshold(value) {
  state.threshold = Math.round(Math.min(Math.max(value, 0), 1) * UNIT);
  recount();
  showSettings();
  showScores();
  changeChart({ posts: postRows(), threshold: [{ p: state.threshold / UNIT }] });
  updatePosts();
  updateCountsInList();
}

function changeWatched(watched) {
  state.watched = watched;
  state.threshold = page.data.thresholds[watched];
  recount();
  showSettings();
  showList();
  showTimeline(state.timeline);
}

// ---- The list of timelines

const collator = new Intl.Collator("en", { numeric: true });
const ORDERS = {
  change: (a, b) => counts[b].alarms - counts[a].alarms,
  length: (a, b) => counts[b].posts - counts[a].posts,
  id: (a, b) => collator.compare(timelines[a].id, timelines[b].id),
};
const lowered = new Map(); // texts in lower case, made when they are searched for the first time

function loweredTexts(index) {
  if (!lowered.has(index)) lowered.set(index, timelines[index].texts.map((text) => text.toLowerCase()));
  return lowered.get(index);
}

function matchingPosts(index) {
  return state.search ? loweredTexts(index).filter((text) => text.includes(state.search)).length : 0;
}

function foundTimelines() {
  const all = [...timelines.keys()].map((index) => ({ index, matches: matchingPosts(index) }));
  const isFound = ({ index, matches }) =>
    !state.search || matches > 0 || timelines[index].id.toLowerCase().includes(state.search);
  const order = ORDERS[byId("sort").value];
  return all.filter(isFound).sort((a, b) => order(a.index, b.index));
}

function countWords(index, matches) {
  const words = `${plural(counts[index].alarms, "alarm")} · ${plural(counts[index].posts, "post")}`;
  return matches ? `${words} · ${plainNumber(matches)} found` : words;
}

function listItem({ index, matches }) {
  const words = element("span", { className: "small quiet" }, countWords(index, matches));
  const spark = element("span", { className: "sparkline", ariaHidden: "true" });
  const name = element("span", {}, element("strong", { title: timelines[index].id }, timelines[index].id), words);
  const button = element("button", { type: "button", ariaCurrent: String(index === state.timeline) }, name, spark);
  button.dataset.timeline = index;
  button.dataset.matches = matches;
  button.addEventListener("click", () => showTimeline(index));
  sparklines.observe(spark);
  return element("li", {}, button);
}

// A sparkline is drawn when it comes on the screen.
const sparklines = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    sparklines.unobserve(entry.target);
    const values = timelines[entry.target.closest("button").dataset.timeline].probabilities[state.watched];
    draw("sparkline", entry.target, { posts: values.map((units, x) => ({ x, p: units / UNIT })) });
  }
});

function showList() {
  const found = foundTimelines();
  sparklines.disconnect();
  byId("timelines").replaceChildren(...found.slice(0, state.listed).map(listItem));
  byId("more").hidden = found.length <= state.listed;
  byId("found").textContent = state.search
    ? `${plainNumber(found.length)} of ${plural(timelines.length, "timeline")} match`
    : plural(timelines.length, "timeline");
}

// While the threshold slides, the order stays: a list that jumps cannot be read.
function updateCountsInList() {
  for (const button of byId("timelines").querySelectorAll("button")) {
    const { timeline, matches } = button.dataset;
    button.querySelector(".small").textContent = countWords(Number(timeline), Number(matches));
  }
}

// ---- One timeline

function shown() {
  return timelines[state.timeline];
}

function isByTime() {
  return state.axis === "time" && shown().times !== null;
}

function placeOf(post) {
  return isByTime() ? shown().times[post] * 1000 : post + 1;
}

function outcome(post) {
  return outcomeOf(shown(), post, state.watched, state.threshold);
}

function probabilityOf(post) {
  return shown().probabilities[state.watched][post];
}

// Where to begin to read.
function mostProbablePost(index) {
  const values = timelines[index].probabilities[state.watched];
  return values.reduce((best, units, post) => (units > values[best] ? post : best), 0);
}

function showTimeline(index) {
  state.timeline = index;
  state.chosen = state.current = mostProbablePost(index);
  for (const button of byId("timelines").querySelectorAll("button")) {
    button.ariaCurrent = String(Number(button.dataset.timeline) === index);
  }
  byId("timeline-title").textContent = shown().id;
  byId("axis").hidden = shown().times === null;
  showScores();
  showChart();
  showPosts();
  choose(state.chosen);
}

function aboutChart() {
  const { times, silence } = shown();
  const words = [];
  if (times === null) words.push("These posts have no times: the chart shows them by position.");
  else words.push(`From ${date(times[0])} to ${date(times[times.length - 1])} UTC.`);
  if (silence !== null) {
    const rule = `${page.data.silence} times the timeline's median time between two posts`;
    words.push(`Lines break at a silence, more than ${duration(silence)} without a post (${rule}).`);
  }
  if (isLabelled) words.push("Below: an open square is a label, a dot what the model predicts.");
  return words.join(" ");
}

function postRows() {
  return shown().texts.map((_, post) => ({
    x: placeOf(post),
    p: probabilityOf(post) / UNIT,
    outcome: outcome(post),
    description: postWords(post),
  }));
}

// A run of a line ends at each silence.
function lineRows() {
  const ends = new Set(shown().silences);
  return names.flatMap((name, label) => {
    let run = 0;
    return shown().probabilities[label].map((units, post) => {
      if (ends.has(post)) run++;
      return { x: placeOf(post), p: units / UNIT, class: name, run };
    });
  });
}

function silenceRows(width) {
  const { times, silences, texts } = shown();
  const span = placeOf(texts.length - 1) - placeOf(0);
  return silences.map((post) => {
    const [x, end] = [placeOf(post - 1), placeOf(post)];
    const fits = ((end - x) / span) * width > 110;
    const words = fits ? `silent for ${duration(times[post] - times[post - 1])}` : "";
    return { x, end, middle: (x + end) / 2, words };
  });
}

function classRows(labels) {
  return labels.flatMap((label, post) => (label < 0 ? [] : [{ x: placeOf(post), class: names[label] }]));
}

function pointRows(post) {
  return [{ x: placeOf(post), p: probabilityOf(post) / UNIT }];
}

function chartName() {
  return isByTime() ? "by_time" : "by_position";
}

function changeChart(data) {
  const view = views[chartName()];
  for (const [name, rows] of Object.entries(data)) view.data(name, rows);
  view.run();
}

function showChart() {
  const into = byId("chart");
  for (const part of into.children) part.hidden = part.id !== chartName();
  views[chartName()].signal("watched", names[state.watched]);
  changeChart({
    posts: postRows(),
    lines: lineRows(),
    silences: silenceRows(into.clientWidth),
    threshold: [{ p: state.threshold / UNIT }],
    current: pointRows(state.current),
    chosen: pointRows(state.chosen),
    ...(isLabelled ? { actual: classRows(shown().actual), predicted: classRows(shown().predicted) } : {}),
  });
  fitWidth(views[chartName()], byId(chartName()), isByTime() ? 0 : NARROWEST_POST * shown().texts.length);
  into.ariaLabel = `Probabilities of the ${plural(shown().texts.length, "post")} of ${shown().id}`;
  byId("about-chart").textContent = aboutChart();
}

function labelWords(post) {
  const label = shown().actual[post];
  const predicted = `predicted ${names[shown().predicted[post]]}`;
  return label < 0 ? predicted : `labelled ${names[label]}, ${predicted}`;
}

function postWords(post) {
  const watched = `${names[state.watched]} ${probability(probabilityOf(post))}`;
  return `Post ${post + 1}: ${watched}, ${outcome(post)}; ${labelWords(post)}`;
}

// ---- Pointing at posts

function pointAt(post) {
  state.current = post;
  changeChart({ current: pointRows(post) });
}

function showTip(post, left, top) {
  const tip = byId("tip");
  tip.replaceChildren(postHead(post), element("span", { className: "post-text", dir: "auto" }, shown().texts[post]));
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const above = top - height - 16;
  tip.style.left = `${Math.max(8, Math.min(left - width / 2, innerWidth - width - 8))}px`;
  tip.style.top = `${above < 8 ? top + 24 : above}px`;
}

function hideTip() {
  byId("tip").hidden = true;
}

// The pixels in which posts are drawn.
function plotBox() {
  return byId(chartName()).querySelector(".concat_0_group .background").getBoundingClientRect();
}

function pixelOf(post) {
  return plotBox().left + views[chartName()].scale("x")(placeOf(post));
}

function nearestPost(clientX) {
  const wanted = Number(views[chartName()].scale("x").invert(clientX - plotBox().left));
  const distance = (post) => Math.abs(placeOf(post) - wanted);
  return shown().texts.reduce((best, _, post) => (distance(post) < distance(best) ? post : best), 0);
}

function pointWithKeys(event) {
  const last = shown().texts.length - 1;
  const moves = { ArrowLeft: state.current - 1, ArrowRight: state.current + 1, Home: 0, End: last };
  if (event.key in moves) {
    pointAt(Math.min(Math.max(moves[event.key], 0), last));
    showTipAtPost();
  } else if (event.key === "Enter" || event.key === " ") choose(state.current);
  else if (event.key === "Escape") hideTip();
  else return;
  event.preventDefault();
}

function showTipAtPost() {
  const chart = byId("chart");
  const visible = chart.getBoundingClientRect();
  const pixel = pixelOf(state.current);
  // By position a long timeline is wider than the screen.
  if (pixel < visible.left || pixel > visible.right) chart.scrollLeft += pixel - (visible.left + visible.right) / 2;
  showTip(state.current, pixelOf(state.current), plotBox().top);
}

// ---- The posts to read

function postHead(post) {
  const { times, actual, speakers } = shown();
  const [kind, label] = [outcome(post), actual[post]];
  return element(
    "span",
    { className: "post-head" },
    element("span", {}, [post + 1, ...(times ? [date(times[post])] : []), ...(speakers[post] ? [speakers[post]] : [])].join(" · ")),
    element(
      "span",
      {},
      `${names[state.watched]} ${probability(probabilityOf(post))} `,
      element("span", { className: `outcome ${kind.replace(" ", "-")}` }, kind),
    ),
    // A hit or a miss has the class to watch.
    ...(label < 0 || label === state.watched ? [] : [element("span", {}, `labelled ${names[label]}`)]),
  );
}

// A text with what is searched for marked. Places are those of the text in lower case, so it is cut only if both have
// the same length.
function markedText(post) {
  const text = shown().texts[post];
  const lower = text.toLowerCase();
  const into = element("span", { className: "post-text", dir: "auto" });
  if (!state.search || lower.length !== text.length) {
    into.append(text);
    return into;
  }
  let from = 0;
  for (let at = lower.indexOf(state.search); at >= 0; at = lower.indexOf(state.search, from)) {
    into.append(text.slice(from, at), element("mark", {}, text.slice(at, at + state.search.length)));
    from = at + state.search.length;
  }
  into.append(text.slice(from));
  return into;
}

function postItem(post) {
  const button = element("button", { type: "button", className: "post" }, postHead(post), markedText(post));
  button.dataset.post = post;
  button.tabIndex = post === state.chosen ? 0 : -1;
  button.ariaCurrent = String(post === state.chosen);
  return element("li", {}, button);
}

function showPosts() {
  const { times, silences, texts } = shown();
  const ends = new Set(silences);
  const items = texts.flatMap((_, post) => {
    if (!ends.has(post)) return [postItem(post)];
    const words = `silent for ${duration(times[post] - times[post - 1])}`;
    return [element("li", { className: "silence" }, words), postItem(post)];
  });
  byId("posts").replaceChildren(...items);
}

function postButtons() {
  return [...byId("posts").querySelectorAll(".post")];
}

function updatePosts() {
  postButtons().forEach((button, post) => button.firstElementChild.replaceWith(postHead(post)));
}

// ---- Why

function choose(post) {
  state.chosen = state.current = post;
  const buttons = postButtons();
  for (const button of buttons) {
    const isChosen = button === buttons[post];
    button.ariaCurrent = String(isChosen);
    button.tabIndex = isChosen ? 0 : -1;
  }
  // The list scrolls, and the page does not.
  const list = byId("posts");
  const item = buttons[post].parentElement;
  if (!list.contains(document.activeElement)) list.scrollTop = item.offsetTop - list.offsetTop - 60;
  changeChart({ chosen: pointRows(post), current: pointRows(post) });
  showWhy();
}

// The stream of the chosen post, oldest first: the last one is the post itself, which has no effect on itself.
function streamRows() {
  const { stream, attention, effects, times } = shown();
  const post = state.chosen;
  return stream[post].map((earlier, place) => {
    const effect = effects[state.watched][post][place];
    const row = { post: earlier + 1, effect: effect === undefined ? null : effect / UNIT, units: effect, earlier };
    row.before = times ? `${duration(times[post] - times[earlier])} earlier` : `${plural(post - earlier, "post")} earlier`;
    row.attention = attention[post].map((layer) => layer[place] / UNIT);
    row.attention.forEach((weight, layer) => (row[`attention_${layer}`] = weight));
    row.description = `Post ${row.post}: ${effect === undefined ? "the post itself" : signed(effect)}`;
    return row;
  });
}

function showWhy() {
  const post = state.chosen;
  const rows = streamRows();
  const earlier = rows.slice(0, -1).sort((a, b) => Math.abs(b.units) - Math.abs(a.units));
  const watched = names[state.watched];
  byId("why-title").textContent = `Why post ${post + 1} has ${watched} ${probability(probabilityOf(post))}`;
  byId("why-text").textContent = shown().texts[post];
  const hasEarlier = earlier.length > 0;
  byId("why_chart").hidden = byId("why-table").hidden = !hasEarlier;
  byId("why-words").replaceChildren(...(hasEarlier ? whyWords(watched, rows[0].attention.length) : [
    "The model saw no earlier post with this one: nothing but the post itself decided.",
  ]));
  if (!hasEarlier) return;
  const largest = Math.abs(earlier[0].effect);
  views.why_chart.signal("reach", Math.max(largest, LEAST_REACH)).data("stream", rows);
  fitWidth(views.why_chart, byId("why_chart"));
  byId("why_chart").ariaLabel = `Effect of each earlier post on the probability of ${watched}`;
  showWhyTable(earlier, rows[rows.length - 1], STRONGEST);
}

function whyWords(watched, layers) {
  const words = [
    element("strong", {}, "Moved it by"),
    ` is a measurement: the probability of ${watched}, less what it would be had the earlier post never been written.`,
  ];
  if (!layers) return words;
  return [
    ...words,
    " ",
    element("strong", {}, "Attention"),
    " is not: it is how much each stream layer looks at a post, and looking at a post need not change anything.",
  ];
}

function cell(tag, words, className = "number") {
  return element(tag, { className }, words);
}

function whyRow(row) {
  const about = row.earlier === state.chosen ? "the post itself" : [`post ${row.post}`, shown().speakers[row.earlier], row.before].filter(Boolean).join(", ");
  const text = row.earlier === state.chosen ? [] : [element("span", { className: "post-text", dir: "auto" }, shown().texts[row.earlier])];
  return element(
    "tr",
    {},
    element("td", {}, element("span", { className: "quiet" }, about), ...text),
    cell("td", row.effect === null ? "" : signed(row.units)),
    ...row.attention.map((weight) => cell("td", `${(100 * weight).toFixed(1)} %`)),
  );
}

function showWhyTable(earlier, itself, most) {
  const heads = itself.attention.map((_, layer) => cell("th", `attention, layer ${layer + 1}`));
  const head = element("tr", {}, cell("th", "earlier post, strongest first", ""), cell("th", "moved it by"), ...heads);
  const body = element("tbody", {}, ...earlier.slice(0, most).map(whyRow));
  if (earlier.length > most) {
    const words = `Show all ${earlier.length} earlier posts`;
    const button = element("button", { type: "button", className: "no-print" }, words);
    button.addEventListener("click", () => showWhyTable(earlier, itself, Infinity));
    body.append(element("tr", {}, element("td", { colSpan: 2 + heads.length }, button)));
  }
  if (itself.attention.length) body.append(whyRow(itself));
  byId("why-table").replaceChildren(element("thead", {}, head), body);
}

// ---- Keys, pointers, and the start

// The arrow keys, Home and End move the focus between the buttons of a list.
function moveFocus(event, buttons) {
  const place = buttons.indexOf(document.activeElement);
  const moves = { ArrowUp: place - 1, ArrowDown: place + 1, Home: 0, End: buttons.length - 1 };
  if (place < 0 || !(event.key in moves)) return;
  buttons[Math.min(Math.max(moves[event.key], 0), buttons.length - 1)].focus();
  event.preventDefault();
}

function listenToSettings() {
  byId("watched").append(...names.map((name, label) => element("option", { value: String(label) }, name)));
  byId("watched").addEventListener("change", (event) => changeWatched(Number(event.target.value)));
  for (const id of ["threshold", "threshold-number"]) {
    byId(id).addEventListener("input", (event) => {
      if (event.target.value !== "") changeThreshold(Number(event.target.value));
    });
    byId(id).addEventListener("change", showList);
  }
}

function listenToList() {
  byId("search").addEventListener("input", (event) => {
    state.search = event.target.value.trim().toLowerCase();
    state.listed = AT_ONCE;
    showList();
    showPosts();
  });
  byId("sort").addEventListener("change", showList);
  byId("more").addEventListener("click", () => {
    state.listed += AT_ONCE;
    showList();
  });
  byId("timelines").addEventListener("keydown", (event) =>
    moveFocus(event, [...byId("timelines").querySelectorAll("button")]),
  );
}

function listenToChart() {
  const chart = byId("chart");
  chart.addEventListener("pointermove", (event) => {
    pointAt(nearestPost(event.clientX));
    showTip(state.current, event.clientX, plotBox().top);
  });
  chart.addEventListener("pointerleave", () => {
    hideTip();
    pointAt(state.chosen);
  });
  chart.addEventListener("click", (event) => choose(nearestPost(event.clientX)));
  chart.addEventListener("keydown", pointWithKeys);
  chart.addEventListener("blur", hideTip);
  byId("axis").addEventListener("change", (event) => {
    state.axis = event.target.value;
    showChart();
  });
  let width = chart.clientWidth;
  new ResizeObserver(() => {
    if (chart.clientWidth === width) return;
    width = chart.clientWidth;
    showChart();
    showWhy();
  }).observe(chart);
}

function listenToPosts() {
  const postOf = (event) => event.target.closest(".post")?.dataset.post;
  byId("posts").addEventListener("click", (event) => {
    if (postOf(event) !== undefined) choose(Number(postOf(event)));
  });
  for (const kind of ["focusin", "pointerover"]) {
    byId("posts").addEventListener(kind, (event) => {
      if (postOf(event) !== undefined) pointAt(Number(postOf(event)));
    });
  }
  byId("posts").addEventListener("keydown", (event) => moveFocus(event, postButtons()));
}

// Charts are made once, and then change their data.
async function makeCharts() {
  const made = ["by_time", "by_position", "why_chart"].map(async (name) => [name, await draw(name, byId(name))]);
  views = Object.fromEntries(await Promise.all(made));
}

async function start() {
  document.body.classList.toggle("alone", timelines.length === 1);
  await makeCharts();
  recount();
  listenToSettings();
  listenToList();
  listenToPosts();
  listenToChart();
  showSettings();
  showList();
  showTimeline(foundTimelines()[0].index);
}

start();
