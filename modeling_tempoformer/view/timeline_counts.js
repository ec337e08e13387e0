// Counts alarms: those that the model has decided on, until a reader moves the threshold; from then on the posts whose
// probability of the class is as large.
// Probabilities and thresholds are integers, in 1 / UNIT, so that they compare exactly; the model's own threshold is
// null. A label is a class id, -1 without one.

const UNIT = 10000;
const BARELY = page.data.barely; // in units

function isAlarm(timeline, post, watched, threshold) {
  if (threshold === null) return timeline.alarms[watched][post];
  return timeline.heeded[post] && timeline.probabilities[watched][post] >= threshold;
}

// Tells whether an alarm would be none with BARELY less of its probability.
function isBarely(timeline, post, watched, threshold) {
  if (threshold === null) return timeline.barely[watched][post];
  return isAlarm(timeline, post, watched, threshold) && timeline.probabilities[watched][post] - BARELY < threshold;
}

function outcomeOf(timeline, post, watched, threshold) {
  const alarm = isAlarm(timeline, post, watched, threshold);
  const label = timeline.actual[post];
  if (label < 0) return alarm ? "alarm" : "no alarm";
  if (label === watched) return alarm ? "hit" : "miss";
  return alarm ? "false alarm" : "no alarm";
}

// Returns the delay of each run of consecutive posts of a class in labelled posts and in seconds, to the first alarm in
// it; null without one.
function delaysOf(timeline, labelled, watched, threshold) {
  const isClass = (index) => timeline.actual[labelled[index]] === watched;
  const starts = [...labelled.keys()].filter((index) => isClass(index) && !(index > 0 && isClass(index - 1)));
  return starts.map((start) => {
    for (let index = start; index < labelled.length && isClass(index); index++) {
      if (!isAlarm(timeline, labelled[index], watched, threshold)) continue;
      const seconds = timeline.times ? timeline.times[labelled[index]] - timeline.times[labelled[start]] : null;
      return { posts: index - start, seconds };
    }
    return null;
  });
}

function countTimeline(timeline, watched, threshold) {
  const all = [...timeline.texts.keys()];
  const labelled = all.filter((post) => timeline.actual[post] >= 0);
  const alarmed = (post) => isAlarm(timeline, post, watched, threshold);
  const ofClass = labelled.filter((post) => timeline.actual[post] === watched);
  return {
    posts: all.length,
    alarms: all.filter(alarmed).length,
    barely: all.filter((post) => isBarely(timeline, post, watched, threshold)).length,
    judged: labelled.filter(alarmed).length,
    ofClass: ofClass.length,
    hits: ofClass.filter(alarmed).length,
    calm: Number(labelled.length > 0 && !ofClass.length),
    calmAlarmed: Number(labelled.length > 0 && !ofClass.length && labelled.some(alarmed)),
    delays: delaysOf(timeline, labelled, watched, threshold),
  };
}

function addCounts(counts) {
  const sum = (name) => counts.reduce((total, count) => total + count[name], 0);
  const names = ["posts", "alarms", "barely", "judged", "ofClass", "hits", "calm", "calmAlarmed"];
  const sums = Object.fromEntries(names.map((name) => [name, sum(name)]));
  return { ...sums, delays: counts.flatMap((count) => count.delays) };
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}
