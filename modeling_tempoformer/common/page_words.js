// Formats numbers, times and durations.

// Units, their seconds, and the number of units from which the next one is used.
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

// Times are dates, or seconds since some start.
function moment(seconds) {
  if (page.data.dated) return new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ");
  const [minutes, rest] = [Math.floor(seconds / 60), Math.floor(seconds % 60)];
  const two = (number) => String(number).padStart(2, "0");
  return `${Math.floor(minutes / 60)}:${two(minutes % 60)}:${two(rest)}`;
}

// Formats a moment below the axis, without its day if the moment before it has the same day.
function nextMoment(seconds, before) {
  const iso = (time) => new Date(time * 1000).toISOString();
  if (!page.data.dated || before === undefined || iso(seconds).slice(0, 10) !== iso(before).slice(0, 10)) return moment(seconds);
  return iso(seconds).slice(11, iso(seconds).slice(0, 16) === iso(before).slice(0, 16) ? 19 : 16);
}

function probability(units) {
  return (units / UNIT).toFixed(3);
}

function signed(value, digits) {
  return (value < 0 ? "−" : "+") + Math.abs(value).toFixed(digits);
}

// A mean with the decimals that its spread has.
function withSpread(mean, spread) {
  const decimals = spread > 0 ? Math.max(0, 1 - Math.floor(Math.log10(spread))) : 2;
  return `${mean.toFixed(decimals)} ± ${spread.toFixed(decimals)}`;
}

function plural(number, noun) {
  return `${plainNumber(number)} ${noun}${number === 1 ? "" : "s"}`;
}

function share(part, whole) {
  return whole ? `${(part / whole).toFixed(3)} (${plainNumber(part)} of ${plainNumber(whole)})` : "–";
}

function medianDelay(delays) {
  const detected = delays.filter((delay) => delay !== null);
  if (!detected.length) return "–";
  const posts = plural(median(detected.map((delay) => delay.posts)), "post");
  if (detected.some((delay) => delay.seconds === null)) return posts;
  return `${posts}, ${duration(median(detected.map((delay) => delay.seconds)))}`;
}
