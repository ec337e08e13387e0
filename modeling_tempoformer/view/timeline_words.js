// How the page of timelines says numbers.

// Each with the number of seconds, and up to how many of them it is used.
const DURATIONS = [
  ["s", 1, 90],
  ["min", 60, 90],
  ["h", 3600, 48],
  ["days", 86400, 730],
  ["years", 365.25 * 86400, Infinity],
];

function duration(seconds) {
  const [unit, size] = DURATIONS.find(([, size, most]) => seconds / size < most);
  const value = seconds / size;
  return `${plainNumber(value < 10 ? Math.round(value * 10) / 10 : Math.round(value))} ${unit}`;
}

function plainNumber(value) {
  return value.toLocaleString("en", { maximumFractionDigits: 4 });
}

function date(seconds) {
  return new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ");
}

function probability(units) {
  return (units / UNIT).toFixed(3);
}

function signed(units) {
  return (units < 0 ? "−" : "+") + probability(Math.abs(units));
}

function plural(number, noun) {
  return `${plainNumber(number)} ${noun}${number === 1 ? "" : "s"}`;
}

function share(part, whole) {
  return whole ? `${(part / whole).toFixed(3)} (${plainNumber(part)} of ${plainNumber(whole)})` : "–";
}

function medianDelay(delays) {
  const found = delays.filter((delay) => delay !== null);
  if (!found.length) return "–";
  const posts = plural(median(found.map((delay) => delay.posts)), "post");
  if (found.some((delay) => delay.seconds === null)) return posts;
  return `${posts}, ${duration(median(found.map((delay) => delay.seconds)))}`;
}
