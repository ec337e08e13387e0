// The page of timelines: its settings, the list, one timeline, and the explanation of a post.

const { names, timelines } = page.data;
const AT_ONCE = 50; // timelines in the list
const NARROWEST_POST = 7; // pixels, by position
const LETTER = 7; // pixels, of a label below the axis
const LOG_ODDS_UNIT = 100;
const LEAST_REACH = 0.5; // of the axis of effects, in log-odds
const STRONGEST = 6; // causes in the table, until all are shown
const BY_RULE = "a rule: a first post is never a change";
const isLabelled = timelines.some((timeline) => timeline.actual.some((label) => label >= 0));
const hasGiven = timelines.some(({ states }) => states?.given.some((given) => given !== ""));
const isTimed = timelines.some((timeline) => timeline.times);

const state = {
  watched: page.data.watched,
  threshold: null, // that of the model
  timeline: 0,
  current: 0, // the post under the pointer
  chosen: 0, // the explained post
  axis: isTimed ? "time" : "position",
  search: "",
  onlyMistakes: false,
  listed: AT_ONCE,
};
let counts = []; // for each timeline
let positions = []; // of the timeline's posts on the horizontal axis
const views = {}; // charts by name

// ---- Settings and counts

function recount() {
  counts = timelines.map((timeline) => countTimeline(timeline, state.watched, state.threshold));
}

// Returns the threshold, or the model's own; undefined with more than two classes and no alarm for this one.
function usedThreshold() {
  return state.threshold ?? page.data.thresholds[state.watched] ?? undefined;
}

function thresholdRows() {
  const used = usedThreshold();
  return used === undefined ? [] : [{ p: used / UNIT }];
}

function alarmRule() {
  if (state.threshold === null) return page.data.rules[state.watched];
  return `An alarm is a post where the probability of ${names[state.watched]} is at least ${state.threshold / UNIT}.`;
}

function aboutPale() {
  return `A pale mark is barely an alarm: with ${BARELY / UNIT} less it would be none.`;
}

function showSettings() {
  const used = usedThreshold();
  byId("watched").value = String(state.watched);
  byId("threshold").value = String((used ?? UNIT / 2) / UNIT);
  byId("threshold-number").value = used === undefined ? "" : String(used / UNIT);
  byId("threshold").setAttribute("aria-valuetext", state.threshold === null ? "as in the model" : String(used / UNIT));
  byId("as-predicted").hidden = state.threshold === null;
  byId("rule").textContent =
    `${alarmRule()} ${aboutPale()}` +
    (isLabelled ? "" : " These posts have no labels, so alarms can be counted but not judged.");
  byId("keep").hidden = !state.threshold || page.data.model === null;
  byId("keep-command").textContent = keepCommand(used);
}

// Quotes a word for a shell, if it needs that.
function quoted(word) {
  return /^[\w./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

function keepCommand(used) {
  const options = { model_name_or_path: page.data.model ?? "", watch: names[state.watched], threshold: String(used / UNIT) };
  return ["tempoformer threshold", ...Object.entries(options).map(([name, value]) => `--${name}=${quoted(value)}`)].join(" ");
}

function scoreRows(count) {
  const numDetected = count.delays.filter((delay) => delay !== null).length;
  const barely = count.barely ? ` (${plainNumber(count.barely)} barely)` : "";
  const rows = { posts: plainNumber(count.posts), alarms: plainNumber(count.alarms) + barely };
  if (!isLabelled) return rows;
  return {
    ...rows,
    "alarms on labelled posts": plainNumber(count.judged),
    precision: share(count.hits, count.judged),
    recall: share(count.hits, count.ofClass),
    "median delay": medianDelay(count.delays),
    [`alarmed without ${names[state.watched]}`]: count.calm ? `${plainNumber(count.calmAlarmed)} of ${plainNumber(count.calm)}` : "–",
    "runs found": count.delays.length ? `${plainNumber(numDetected)} of ${plainNumber(count.delays.length)}` : "–",
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
  state.threshold = value === null ? null : Math.round(Math.min(Math.max(value, 0), 1) * UNIT);
  recount();
  showSettings();
  showScores();
  changeChart({ posts: postRows(), threshold: thresholdRows() });
  updatePosts();
  updateCountsInList();
}

// Keeps the timeline and its post, to which the list scrolls in its new order.
function changeWatched(watched) {
  Object.assign(state, { watched, threshold: null });
  recount();
  showSettings();
  const place = matchingTimelines().findIndex(({ index }) => index === state.timeline);
  state.listed = Math.max(state.listed, place + 1);
  showList();
  showTimeline(state.timeline, state.chosen);
  const current = byId("timelines").children[place];
  if (current) byId("timelines").scrollTop = current.offsetTop - byId("timelines").offsetTop;
}

// ---- The list of timelines

const collator = new Intl.Collator("en", { numeric: true });
const ORDERS = {
  alarms: (a, b) => counts[b].alarms - counts[a].alarms,
  length: (a, b) => counts[b].posts - counts[a].posts,
  id: (a, b) => collator.compare(timelines[a].id, timelines[b].id),
};
const lowered = new Map(); // texts in lower case, by timeline, from the first search on

function loweredTexts(index) {
  if (!lowered.has(index)) lowered.set(index, timelines[index].texts.map((text) => text.toLowerCase()));
  return lowered.get(index);
}

function matchingPosts(index) {
  return state.search ? loweredTexts(index).filter((text) => text.includes(state.search)).length : 0;
}

// A mistake is a post whose prediction is not its label, whatever the threshold.
function isMistake(index, post) {
  const { actual, predicted } = timelines[index];
  return actual[post] >= 0 && actual[post] !== predicted[post];
}

function mistakesOf(index) {
  return timelines[index].texts.filter((_, post) => isMistake(index, post)).length;
}

function matchingTimelines() {
  const all = [...timelines.keys()].map((index) => ({ index, matches: matchingPosts(index) }));
  const isFound = ({ index, matches }) =>
    !state.search || matches > 0 || timelines[index].id.toLowerCase().includes(state.search);
  const isMatch = (item) => isFound(item) && (!state.onlyMistakes || mistakesOf(item.index) > 0);
  const order = ORDERS[byId("sort").value];
  return all.filter(isMatch).sort((a, b) => order(a.index, b.index));
}

function countWords(index, matches) {
  const number = state.onlyMistakes ? plural(mistakesOf(index), "mistake") : plural(counts[index].alarms, "alarm");
  const words = `${number} · ${plural(counts[index].posts, "post")}`;
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

// Draws a sparkline when it scrolls into view.
const sparklines = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    sparklines.unobserve(entry.target);
    const values = timelines[entry.target.closest("button").dataset.timeline].probabilities[state.watched];
    draw("sparkline", entry.target, { posts: values.map((units, x) => ({ x, p: units / UNIT })) });
  }
});

function showList() {
  const matching = matchingTimelines();
  sparklines.disconnect();
  byId("timelines").replaceChildren(...matching.slice(0, state.listed).map(listItem));
  byId("more").hidden = matching.length <= state.listed;
  byId("found").textContent = state.search || state.onlyMistakes
    ? `${plainNumber(matching.length)} of ${plural(timelines.length, "timeline")} match`
    : plural(timelines.length, "timeline");
}

// Updates counts but not the order, so that the list does not jump while the threshold slides.
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

// Returns the positions of posts by time, in seconds. Silences share at most a quarter of the width evenly.
function positionsByTime({ times, silences, silence }) {
  const isSilent = new Set(silences);
  const gaps = times.map((time, post) => (post ? time - times[post - 1] : 0));
  const rest = gaps.reduce((sum, gap, post) => (isSilent.has(post) ? sum : sum + gap), 0);
  const silent = Math.min(silence, rest / 3 / silences.length);
  let position = 0;
  return gaps.map((gap, post) => (position += isSilent.has(post) ? silent : gap));
}

function outcome(post) {
  return outcomeOf(shown(), post, state.watched, state.threshold);
}

function outcomeWords(post) {
  return outcome(post) + (isBarely(shown(), post, state.watched, state.threshold) ? ", barely" : "");
}

function isPale(post) {
  return isBarely(shown(), post, state.watched, state.threshold);
}

function probabilityOf(post) {
  return shown().probabilities[state.watched][post];
}

// Returns by how much the text of a post moves its log-odds the way in which the post was decided: up for an alarm, down
// for another post.
function pull(index, post) {
  const { stream, log_odds_effects: effects } = timelines[index];
  const effect = effects[state.watched][post][stream[post].length - 1];
  return isAlarm(timelines[index], post, state.watched, state.threshold) ? effect : -effect;
}

// Returns the post to show first: among the mistakes if only they are shown, among the alarms, or among all posts, the
// typical one. Its text moves it the way in which it was decided, by about the median of such posts.
function firstPost(index) {
  const timeline = timelines[index];
  const ranks = timeline.texts.map((_, post) => {
    const alarm = isAlarm(timeline, post, state.watched, state.threshold) ? 1 : 0;
    return alarm + (state.onlyMistakes && isMistake(index, post) ? 2 : 0);
  });
  const best = [...ranks.keys()].filter((post) => ranks[post] === Math.max(...ranks));
  const pulled = best.filter((post) => pull(index, post) > 0);
  const among = pulled.length ? pulled : best;
  const middle = median(among.map((post) => pull(index, post)));
  const distance = (post) => Math.abs(pull(index, post) - middle);
  return among.reduce((nearest, post) => (distance(post) < distance(nearest) ? post : nearest));
}

function showTimeline(index, post = firstPost(index)) {
  state.timeline = index;
  state.chosen = state.current = post;
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
  else {
    const clock = page.data.dated ? " UTC" : " since the start";
    words.push(`From ${moment(times[0])} to ${moment(times[times.length - 1])}${clock}.`);
  }
  if (shown().silences.length) {
    const rule = `${page.data.silence} times the timeline's median time between two posts`;
    words.push(`A shaded band is a silence, more than ${duration(silence)} without a post (${rule}); by time it is drawn shorter.`);
  }
  if (page.data.states) words.push(aboutStates());
  if (isLabelled) words.push("Below: an open square is a label, a dot what the model predicts.");
  return words.join(" ");
}

function postRows() {
  return shown().texts.map((_, post) => ({
    x: positions[post],
    p: probabilityOf(post) / UNIT,
    outcome: outcome(post),
    pale: isPale(post),
    description: postWords(post),
  }));
}

// Breaks lines at silences.
function lineRows() {
  const ends = new Set(shown().silences);
  return names.flatMap((name, label) => {
    // With two classes the other line would be the same, upside down.
    if (names.length === 2 && label !== state.watched) return [];
    let run = 0;
    return shown().probabilities[label].map((units, post) => {
      if (ends.has(post)) run++;
      return { x: positions[post], p: units / UNIT, class: name, run };
    });
  });
}

function silenceRows(width) {
  const { times, silences, texts } = shown();
  const span = positions[texts.length - 1] - positions[0];
  return silences.map((post) => {
    const [x, end] = [positions[post - 1], positions[post]];
    const words = duration(times[post] - times[post - 1]);
    if (((end - x) / span) * width < LETTER * words.length) return { x, end };
    return { x, end, middle: (x + end) / 2, words };
  });
}

// Returns the ends of the strips of posts: each reaches halfway to its neighbours, and only a little into a silence.
function stripEnds() {
  const isSilent = new Set(shown().silences);
  const gaps = positions.slice(1).map((position, post) => position - positions[post]);
  const usual = gaps.length ? median(gaps) || Math.max(...gaps) : 1;
  const half = (post) => (post > 0 && post <= gaps.length && !isSilent.has(post) ? gaps[post - 1] : Math.min(usual, gaps[post - 1] ?? usual)) / 2;
  return positions.map((position, post) => [position - half(post), position + half(post + 1)]);
}

function stripRows() {
  const { likeliest, sure, given } = shown().states;
  const { names: stateNames, coloured, other } = page.data.states;
  const colour = (name) => (coloured.includes(name) ? name : other);
  return stripEnds().flatMap(([x, end], post) => [
    { x, end, kind: "state", state: colour(stateNames[likeliest[post]]), sure: sure[post] / UNIT },
    ...(given[post] ? [{ x, end, kind: "given", state: colour(given[post]), sure: 1 }] : []),
  ]);
}

// A line belongs to a speaker, and is broken at silences.
function numberRows() {
  const { mean, spread } = shown().states;
  const ends = new Set(shown().silences);
  let silence = 0;
  return mean.map((value, post) => {
    if (ends.has(post)) silence++;
    const run = `${silence} ${shown().speakers[post]}`;
    return { x: positions[post], mean: value, low: value - spread[post], high: value + spread[post], run };
  });
}

function stateData() {
  const { states } = shown();
  if (!states) return {};
  if (!states.mean) return { states: stripRows() };
  const given = states.given.flatMap((value, post) => (value === "" ? [] : [{ x: positions[post], value: Number(value) }]));
  return { states: numberRows(), given };
}

function aboutStates() {
  if (!shown().states.mean) {
    const given = hasGiven ? ", above the state that was given" : "";
    return `The strip of colours is the likeliest state of each post, fainter where the model is less sure${given}.`;
  }
  const given = hasGiven ? ", and a dash what was given" : "";
  return `The line of the state is its mean, the band one standard deviation to each side${given}.`;
}

function classRows(labels) {
  return labels.flatMap((label, post) => (label < 0 ? [] : [{ x: positions[post], class: names[label] }]));
}

function pointRows(post) {
  return [{ x: positions[post], p: probabilityOf(post) / UNIT }];
}

function changeChart(data) {
  const view = views.timeline_chart;
  for (const [name, rows] of Object.entries(data)) view.data(name, rows);
  view.run();
}

// Labels as many posts as have room below the axis with their times or their numbers.
function showTicks() {
  const { times } = shown();
  const view = views.timeline_chart;
  const [ticks, words] = [[], []];
  let [end, before] = [-Infinity, undefined];
  for (const post of positions.keys()) {
    const pixel = view.scale("x")(positions[post]);
    const label = isByTime() ? nextMoment(times[post], before) : String(post + 1);
    const right = pixel + LETTER * label.length;
    if (pixel < end || (post > 0 && right > view.width() + RIGHT)) continue;
    ticks.push(positions[post]);
    words.push(label);
    before = times?.[post];
    end = right + 14;
  }
  // Resized, because the labels need room.
  view.signal("ticks", ticks).signal("tick_words", words).resize().run();
}

async function showChart() {
  const into = byId("chart");
  positions = isByTime() ? positionsByTime(shown()) : shown().texts.map((_, post) => post + 1);
  views.timeline_chart.signal("watched", names[state.watched]);
  changeChart({
    posts: postRows(),
    lines: lineRows(),
    silences: silenceRows(into.clientWidth),
    threshold: thresholdRows(),
    current: pointRows(state.current),
    chosen: pointRows(state.chosen),
    ...stateData(),
    ...(isLabelled ? { actual: classRows(shown().actual), predicted: classRows(shown().predicted) } : {}),
  });
  into.ariaLabel = `Probabilities of the ${plural(shown().texts.length, "post")} of ${shown().id}`;
  byId("about-chart").textContent = aboutChart();
  await fitWidth(views.timeline_chart, byId("timeline_chart"), isByTime() ? 0 : NARROWEST_POST * positions.length);
  showTicks();
}

function labelWords(post) {
  const label = shown().actual[post];
  const predicted = `predicted ${names[shown().predicted[post]]}`;
  return label < 0 ? predicted : `labelled ${names[label]}, ${predicted}`;
}

// Returns what the model says about the state of a post.
function stateOf(post) {
  const { likeliest, sure, mean, spread } = shown().states;
  if (mean) return withSpread(mean[post], spread[post]);
  return `${page.data.states.names[likeliest[post]]} ${Math.round(sure[post] / (UNIT / 100))} %`;
}

// Returns from which state to which a post goes.
function stateWords(post) {
  const { states, speakers } = shown();
  const before = states.before[post];
  const words = [`State: ${stateOf(post)}`];
  if (before >= 0) {
    const same = speakers[post] && speakers[before] === speakers[post] ? ", same speaker" : "";
    words.push(` (before: ${stateOf(before)}${same})`);
  }
  if (states.given[post]) words.push(`; given: ${states.given[post]}`);
  if (states.given[post] && states.given[before]) words.push(` (before: ${states.given[before]})`);
  return `${words.join("")}.`;
}

function postWords(post) {
  const watched = `${names[state.watched]} ${probability(probabilityOf(post))}`;
  const words = `Post ${post + 1}: ${watched}, ${outcomeWords(post)}; ${labelWords(post)}`;
  return shown().states ? `${words}; state ${stateOf(post)}` : words;
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

// Returns the rectangle in which posts are drawn, in pixels.
function plotBox() {
  return byId("timeline_chart").querySelector(".concat_0_group .background").getBoundingClientRect();
}

function pixelOf(post) {
  return plotBox().left + views.timeline_chart.scale("x")(positions[post]);
}

function nearestPost(clientX) {
  const wanted = views.timeline_chart.scale("x").invert(clientX - plotBox().left);
  const distance = (post) => Math.abs(positions[post] - wanted);
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
  // A long timeline by position is wider than the screen.
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
    element("span", {}, [post + 1, ...(times ? [moment(times[post])] : []), ...(speakers[post] ? [speakers[post]] : [])].join(" · ")),
    element(
      "span",
      {},
      `${names[state.watched]} ${probability(probabilityOf(post))} `,
      element("span", { className: `outcome ${kind.replace(" ", "-")}` }, outcomeWords(post)),
    ),
    // The label of a hit or a miss is the watched class.
    ...(label < 0 || label === state.watched ? [] : [element("span", {}, `labelled ${names[label]}`)]),
    ...(shown().states ? [element("span", {}, `state ${stateOf(post)}`)] : []),
  );
}

// Marks the search in a text. Its position is that in lower case, so nothing is marked if the two differ in length.
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
  return element("li", { hidden: state.onlyMistakes && !isMistake(state.timeline, post) }, button);
}

function showPosts() {
  const { times, silences, texts } = shown();
  const ends = new Set(silences);
  const items = texts.flatMap((_, post) => {
    if (!ends.has(post) || state.onlyMistakes) return [postItem(post)];
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

// ---- The explanation of a post

function choose(post) {
  state.chosen = state.current = post;
  const buttons = postButtons();
  const isShown = (button) => !button.parentElement.hidden;
  const reached = isShown(buttons[post]) ? buttons[post] : buttons.find(isShown);
  for (const button of buttons) {
    button.ariaCurrent = String(button === buttons[post]);
    button.tabIndex = button === reached ? 0 : -1;
  }
  // Scrolls the list but not the page.
  const list = byId("posts");
  const item = buttons[post].parentElement;
  if (!list.contains(document.activeElement)) list.scrollTop = item.offsetTop - list.offsetTop - 60;
  changeChart({ chosen: pointRows(post), current: pointRows(post) });
  showWhy();
}

// Returns the causes that moved the chosen post: the posts of its stream, oldest first and itself last, the time since
// the post before, and its position in the timeline.
function causes() {
  const { stream, attention, effects, log_odds_effects, times, speakers, texts } = shown();
  const post = state.chosen;
  const all = stream[post].map((earlier, index) => {
    const before = times ? `${duration(times[post] - times[earlier])} earlier` : `${plural(post - earlier, "post")} earlier`;
    const about = [`post ${earlier + 1}`, speakers[earlier], before].filter(Boolean).join(", ");
    const weights = attention[post].map((layer) => layer[index] / UNIT);
    return earlier === post
      ? { post: post + 1, about: "what the post itself says", attention: weights }
      : { post: earlier + 1, about, text: texts[earlier], attention: weights };
  });
  all.push({ about: times && post ? `the ${duration(times[post] - times[post - 1])} since the post before` : null });
  all.push({ about: `being post ${post + 1} of the timeline` });
  all.forEach((cause, index) => {
    const effect = log_odds_effects[state.watched][post][index];
    // Without a number, the class of a first post is a rule.
    cause.byRule = effect === null;
    cause.effect = effect / LOG_ODDS_UNIT;
    cause.inProbability = effects[state.watched][post][index] / UNIT;
    cause.description = `${cause.about}: ${cause.byRule ? BY_RULE : `${signed(cause.effect, 2)} log-odds`}`;
    cause.attention?.forEach((weight, layer) => (cause[`attention_${layer}`] = weight));
  });
  return all.filter((cause) => cause.about);
}

function showWhy() {
  const post = state.chosen;
  const all = causes();
  const ofPosts = all.filter((cause) => cause.post);
  const layers = ofPosts[0].attention.length;
  const watched = names[state.watched];
  byId("why-title").textContent = `Why post ${post + 1} has ${watched} ${probability(probabilityOf(post))}`;
  byId("why-text").textContent = shown().texts[post];
  byId("why-state").hidden = !shown().states;
  if (shown().states) byId("why-state").textContent = stateWords(post);
  const hasEarlier = ofPosts.length > 1;
  for (const id of ["why_chart", "why-table", "save-why"]) byId(id).hidden = !hasEarlier;
  byId("why-words").replaceChildren(...(hasEarlier ? whyWords(watched, layers) : [
    "This post has no earlier posts: its prediction comes from its own text.",
  ]));
  if (!hasEarlier) return;
  const largest = Math.max(...ofPosts.map((cause) => Math.abs(cause.effect)));
  views.why_chart.signal("reach", Math.max(largest, LEAST_REACH)).data("stream", ofPosts);
  fitWidth(views.why_chart, byId("why_chart"));
  byId("why_chart").ariaLabel = `Effect of each post of the stream on the log-odds of ${watched}`;
  const strength = (cause) => Math.abs(cause.effect);
  const moving = all.filter((cause) => cause.effect !== 0).sort((a, b) => strength(b) - strength(a));
  const ruled = all.filter((cause) => cause.byRule);
  showWhyTable([...moving, ...ruled], layers, STRONGEST + ruled.length, all.length - moving.length - ruled.length);
}

function whyWords(watched, layers) {
  const words = [
    element("strong", {}, "Moved it by"),
    ` is a measurement: the prediction for ${watched} less the prediction without the earlier post, with an empty text ` +
      "in the place of the post's own, without the time since the post before, or as the first post of the timeline. Log-odds show effects even if the model is sure: +0.7 doubles the odds, +2.3 makes them tenfold.",
  ];
  if (!layers) return words;
  return [
    ...words,
    " ",
    element("strong", {}, "Attention"),
    " is not: it is the weight that each stream layer gives a post, which need not change the prediction.",
  ];
}

function cell(tag, words, className = "number") {
  return element(tag, { className }, words);
}

function whyRow(cause, layers) {
  const text = cause.text === undefined ? [] : [element("span", { className: "post-text", dir: "auto" }, cause.text)];
  const weights = cause.attention?.map((weight) => `${(100 * weight).toFixed(1)} %`) ?? Array(layers).fill("");
  return element(
    "tr",
    {},
    element("td", {}, element("span", { className: "quiet" }, cause.about), ...text),
    ...(cause.byRule
      ? [element("td", { colSpan: 2, className: "quiet" }, BY_RULE)]
      : [cell("td", signed(cause.effect, 2)), cell("td", signed(cause.inProbability, 3))]),
    ...weights.map((weight) => cell("td", weight)),
  );
}

// The rows of causes whose effect is rounded to 0 are only counted, in `still`.
function showWhyTable(all, layers, most, still) {
  const heads = ["moved its log-odds by", "its probability by"];
  for (let layer = 1; layer <= layers; layer++) heads.push(`attention, layer ${layer}`);
  const head = element("tr", {}, cell("th", "strongest first", ""), ...heads.map((words) => cell("th", words)));
  const body = element("tbody", {}, ...all.slice(0, most).map((cause) => whyRow(cause, layers)));
  const below = (...children) => body.append(element("tr", {}, element("td", { colSpan: 1 + heads.length }, ...children)));
  if (all.length > most) {
    const button = element("button", { type: "button", className: "no-print" }, `Show all ${all.length}`);
    button.addEventListener("click", () => showWhyTable(all, layers, Infinity, still));
    below(button);
  }
  if (still) below(element("span", { className: "quiet" }, `${plural(still, "other")} moved it by 0.00 log-odds.`));
  byId("why-table").replaceChildren(element("thead", {}, head), body);
  byId("why-table").style.setProperty("--numbers", heads.length);
}

// ---- Keys, pointers, and the start

// The arrow keys, Home and End move the focus between the buttons of a list.
function moveFocus(event, all) {
  const buttons = all.filter((button) => !button.parentElement.hidden);
  const index = buttons.indexOf(document.activeElement);
  const moves = { ArrowUp: index - 1, ArrowDown: index + 1, Home: 0, End: buttons.length - 1 };
  if (index < 0 || !(event.key in moves)) return;
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
  byId("as-predicted").addEventListener("click", () => {
    changeThreshold(null);
    showList();
    byId("threshold").focus();
  });
}

function listenToList() {
  byId("search").addEventListener("input", (event) => {
    state.search = event.target.value.trim().toLowerCase();
    state.listed = AT_ONCE;
    showList();
    showPosts();
  });
  byId("sort").addEventListener("change", showList);
  byId("only-mistakes").addEventListener("change", (event) => {
    state.onlyMistakes = event.target.checked;
    state.listed = AT_ONCE;
    showList();
    const [first] = matchingTimelines();
    showTimeline(state.onlyMistakes && first && !mistakesOf(state.timeline) ? first.index : state.timeline);
  });
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
  byId("save-timeline").addEventListener("click", () => saveChart(views.timeline_chart, shown().id));
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
  byId("save-why").addEventListener("click", () => saveChart(views.why_chart, `${shown().id} ${state.chosen + 1}`));
}

async function start() {
  document.body.classList.toggle("alone", timelines.length === 1);
  // Charts are drawn once; later only their data change.
  for (const name of ["timeline_chart", "why_chart"]) views[name] = await draw(name, byId(name));
  byId("mistakes").hidden = !isLabelled;
  recount();
  listenToSettings();
  listenToList();
  listenToPosts();
  listenToChart();
  showSettings();
  showList();
  const listed = matchingTimelines();
  const typical = listed.find(({ index }) => pull(index, firstPost(index)) > 0) ?? listed[0];
  showTimeline(typical.index);
}

start();
