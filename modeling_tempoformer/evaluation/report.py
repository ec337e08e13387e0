"""Scores the splits of a run, and presents their results: in `all_results.json`, in tables and in plain words."""

import json
import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from huggingface_hub import hf_hub_download
from huggingface_hub.errors import EntryNotFoundError
from transformers import PreTrainedConfig

from ..common.data_frames import to_table
from ..posts.metadata import all_metadata
from ..timeline_tempoformer import Timeline
from .alarm_costs import PER_DAY, PER_HUNDRED
from .alarms import OTHER, alarm_kind, alarm_sentence, measured_words, score_alarms, wanted_words
from .annotator_scores import score_annotators
from .baseline_scores import compare_with, compare_with_baselines, learn_baselines
from .group_scores import score_groups
from .method_names import baseline_name
from .metrics import change_detection, choose_no_change, compute_scores
from .people_scores import score_people
from .predictions import ExpertDecisions, all_labels, labelled_posts, timeline_numbers


RESULTS = "all_results.json"
# Metrics that have another name in the file
RENAMED = {"support": "posts", "runtime": "seconds", "epoch": "epochs", "samples_per_second": "rows_per_second"}
WHAT_HELPS = (
    "That is nothing to rely on. What helps: labels of more people, a short stretch of each, and what "
    "docs/troubleshooting.md says"
)
# A score of so few timelines depends on which timelines they are.
FEW_TIMELINES = 4
CENTRAL = (0.025, 0.975)
# Two methods whose difference is less than its interval
NO_DIFFERENCE = "cannot be told apart"
BETTER, WORSE, AS_GOOD = "is better than", "is worse than", f"{NO_DIFFERENCE} from"
EXPERTS = {"network": "the network", "trees": "its trees", "states": "its states", "words": "its words"}
SCORE_COLUMNS = ["macro F1", "95 % interval", "this model above it by", "95 % interval"]
GROUP_COLUMNS = ["posts", "timelines", "macro F1", "95 % interval", "above all others by", "95 % interval"]
COSTS = {
    "found_changes": "runs found",
    "missed_changes": "runs missed",
    "found_timelines": "timelines with a run where one is found",
    "falsely_alarmed_timelines": "timelines without a run that get an alarm",
    "false_alarms_per_timeline": "false alarms of a timeline",
    PER_DAY: "false alarms a day",
    PER_HUNDRED: "false alarms of a hundred posts",
    "median_alarm_delay_posts": "median delay of an alarm, in posts",
    "median_alarm_delay_seconds": "median delay of an alarm",
    "median_advance_posts": "median advance of an early alarm, in posts",
    "latency_f1": "latency-weighted F1 of timelines",
    "recovery": "alarms rightly held back less wrongly, as a share",
}
SPANS = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}
ANNOTATOR_COLUMNS = ["posts", "macro F1", "this model's", "this model above it by", "95 % interval"]

logger = logging.getLogger(__name__)


def score_part(
    timelines: Sequence[Timeline],
    predictions: np.ndarray,
    probabilities: np.ndarray,
    names: list[str],
    train: Sequence[Timeline] | None = None,
    vectors: tuple[np.ndarray, np.ndarray] | None = None,
    experts: Mapping[str, ExpertDecisions] | None = None,
    config: PreTrainedConfig | None = None,
    without_known_states: np.ndarray | None = None,
) -> dict[str, Any]:
    """
    The number of posts of a split, and whether they were `held_out_in_turn` from training; if any is labelled, also
    its [`compute_scores`], its [`compare_with_baselines`], the `confidence_range`, in which the largest probability of
    95 % of the posts lies, and for each of the model's `experts` its `weight`, its [`compare_with`] alone, and under
    `without` that of the others; the [`score_groups`] of posts with groups, and the [`score_annotators`] of posts that
    several people have labelled; the class that counts as `no_change`; and if `train` is given and is not held out in
    turn, under `people` [`score_people`]. All these are of labels. If the model watches a class, by its `config`, its
    [`score_alarms`] follow under `alarm`. `predictions` and `probabilities` come from [`decide_posts`], `experts` from
    [`decide_experts`]; `train` and `vectors` are as in [`learn_baselines`]; `without_known_states` are the model's
    probabilities where no earlier state is known.
    """
    posts, metadata = labelled_posts(timelines, predictions, names, probabilities), all_metadata(timelines)
    labelled = all_labels(timelines) >= 0
    num_posts = sum(len(timeline) - timeline.num_context for timeline in timelines)
    counts = {"posts": num_posts, "labelled_posts": len(posts.labels), "timelines": len(timelines)}
    if timelines[0].held_out is not None:
        counts["held_out_in_turn"] = True
    if not len(posts.labels):
        return counts
    baselines = learn_baselines(timelines, len(names), train, vectors, config)
    # Only a model that was calibrated for macro F1 has thresholds.
    has_thresholds = (getattr(config, "calibration", None) or {}).get("thresholds") is not None
    variants = {"without_thresholds": (posts.probabilities, {})} if has_thresholds else {}
    if without_known_states is not None:
        variants["without_known_states"] = without_known_states[labelled], {}
    known = all_labels(timelines if train is None else train)
    no_change = choose_no_change(config, known, names)
    scores = counts | compute_scores(posts, no_change) | compare_with_baselines(posts, baselines | variants)
    scores["no_change"] = names[no_change]
    if train is not None and timelines[0].held_out is None:
        scores["people"] = score_people(posts, labelled, timelines, train, no_change)
    scores["confidence_range"] = np.quantile(posts.probabilities.max(-1), CENTRAL).tolist()
    if experts is not None:
        scores["experts"] = {
            name: {"weight": expert.weight}
            | ({} if expert.alone is None else compare_with(posts, expert.alone[labelled]))
            | ({} if expert.without is None else {"without": compare_with(posts, expert.without[labelled])})
            for name, expert in experts.items()
        }
    groups = [one.group for one, counts in zip(metadata, labelled, strict=True) if counts]
    if groups[0] is not None:
        scores["groups"] = score_groups(posts, groups)
    given = [one.labels for one in metadata]
    if people := score_annotators(given, predictions, timeline_numbers(timelines), len(names)):
        scores["annotators"] = people
    if getattr(config, "watched", None) is not None:
        scores["alarm"] = score_alarms(timelines, predictions, probabilities, config, baselines)
    return scores


def group_by_class(metrics: Mapping[str, Any], prefix: str, names: list[str]) -> dict[str, Any]:
    """Groups the Trainer's metrics of a split, without their prefix; the metrics of each class get a dict."""
    kinds = [score.name for score in change_detection().SCORES if score.by_class]
    class_metrics = {f"{kind}_{name}": (name, kind) for name in names for kind in kinds}
    nested: dict[str, Any] = {}
    for metric, value in metrics.items():
        metric = metric.removeprefix(f"{prefix}_")
        if metric in class_metrics:
            name, kind = class_metrics[metric]
            nested.setdefault("classes", {}).setdefault(name, {})[RENAMED.get(kind, kind)] = value
        else:
            nested[RENAMED.get(metric, metric)] = value
    return nested


def read_test(model: str, **downloads: Any) -> dict[str, Any]:
    """Reads the results of a model's own test, beside its weights in a folder or on the Hub; empty without them."""
    try:
        path = Path(model, RESULTS) if Path(model).is_dir() else Path(hf_hub_download(model, RESULTS, **downloads))
        return json.loads(path.read_text(encoding="utf-8")).get("test", {})
    except (FileNotFoundError, EntryNotFoundError):
        return {}


def verdict(results: Mapping[str, Any]) -> str | None:
    """
    A note that all predictions are one class, or that macro F1 is not surely above guessing each class by its share:
    that the interval, or without one the score, reaches down to it.
    """
    if "classes" not in results:
        return None
    classes, macro_f1 = results["classes"], results["macro_f1"]
    num_posts = sum(scores["posts"] for scores in classes.values())
    for name, scores in classes.items():
        # If every post is predicted as this class, its recall is 1, and its precision is its share of the posts.
        if scores["recall"] == 1 and math.isclose(scores["precision"], scores["posts"] / num_posts):
            return f"every post is predicted as {name}; macro F1 {macro_f1:.3f}"
    # The expected macro F1 of guessing
    guessed = 1 / len(classes)
    if macro_f1 <= guessed:
        return f"macro F1 {macro_f1:.3f} does not beat guessing by the classes' shares, {guessed:.3f}"
    if results.get("macro_f1_interval", [1.0])[0] <= guessed:
        return f"macro F1 {macro_f1_of(results)} {AS_GOOD} guessing by the classes' shares, {guessed:.3f}"
    return None


def warn_of_worthless(metrics: dict[str, float], names: list[str]):
    """Warns if a model with these `eval_` metrics has learned nothing that shows ([`verdict`])."""
    if note := verdict(group_by_class(metrics, "eval", names)):
        logger.warning(
            "The model that is kept has learned nothing that shows: on the validation split %s. %s.", note, WHAT_HELPS
        )


def remarks(results: Mapping[str, Any]) -> list[str]:
    """Sentences about results that are worth little; none if all is well, or if no post has a label."""
    note = verdict(results)
    sentences = [f"{note[0].upper()}{note[1:]}. {WHAT_HELPS}."] if note else []
    sentences += [*baseline_sentences(results, AS_GOOD, WORSE), *better_alarm_lines(results)]
    sentences += [
        f"It is worse for {name}: macro F1 {group['macro_f1']:.3f}, {-group['difference']:.3f} below all "
        f"others (95 % interval of the difference {to_text(group['difference_interval'], '+')})."
        for name, group in results.get("groups", {}).items()
        if "difference" in group and compared(group) == WORSE
    ]
    counts = {name: scores.get("timelines_of_half") for name, scores in results.get("classes", {}).items()}
    if few := [f"{name}: {count:.0f}" for name, count in counts.items() if count and count <= FEW_TIMELINES]:
        sentences.append(
            f"Half of a class is in few of the {results['timelines']} timelines ({', '.join(few)}): with others the "
            "score may differ. Do not trust one split: cross-validation tests on all timelines."
        )
    return sentences


def baseline_sentences(results: Mapping[str, Any], *verdicts: str) -> list[str]:
    """Returns a sentence for each verdict of [`compared`], with the baselines that it is about and their macro F1."""
    baselines: dict[str, list[str]] = {}
    for name, score in results.get("compared_with", {}).items():
        baselines.setdefault(compared(score), []).append(f"{baseline_name(name, score)} ({score['macro_f1']:.3f})")
    return [f"This model {words} {listed(baselines[words])}." for words in verdicts if words in baselines]


def listed(names: Sequence[str]) -> str:
    """Returns names as a sentence lists them: "a", "a and b", "a, b and c"."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def compared(score: Mapping[str, Any]) -> str:
    """
    Returns the verdict on the difference between a model and a baseline: better, worse, or as good if the interval
    contains 0 or is missing, as for a single timeline.
    """
    low, high = score.get("difference_interval", (-math.inf, math.inf))
    if low > 0:
        return BETTER
    return WORSE if high < 0 else AS_GOOD


def deciding_lines(results: Mapping[str, Any]) -> list[str]:
    """
    Returns a sentence on which of the model's experts decide, by their weights, and on what macro F1 would be without
    each; empty without experts.
    """
    experts = results.get("experts")
    if experts is None:
        return []
    weights = {name: experts[name]["weight"] for name in sorted(experts, key=lambda name: -experts[name]["weight"])}
    deciding = [f"{EXPERTS[name]} ({weight:.2f})" for name, weight in weights.items() if weight]
    others = [EXPERTS[name] for name, weight in weights.items() if not weight]
    words = f"Who decides, by weights chosen on held-out posts: {listed(deciding or ['none'])}"
    if others:
        words += f"; {listed(others)} {'has' if others == [EXPERTS['network']] else 'have'} no weight"
    without = [
        f"without {EXPERTS[name]} {score['macro_f1']:.3f} ({difference_of(score)})"
        for name in weights
        if (score := experts[name].get("without"))
    ]
    return [f"{words}; macro F1 would be {listed(without)}." if without else f"{words}."]


def expert_lines(results: Mapping[str, Any]) -> list[str]:
    """Returns the macro F1 of each of the model's experts alone, in words; empty without experts."""
    computed = {name: score for name, score in results.get("experts", {}).items() if "macro_f1" in score}
    if not computed:
        return []
    experts = {f"{EXPERTS[name]} alone": score for name, score in computed.items()}
    alone = [f"{name} {score['macro_f1']:.3f}" for name, score in experts.items()]
    as_good = [name for name, score in experts.items() if compared(score) == AS_GOOD]
    together = f"; all together {AS_GOOD} {listed(as_good)}" if as_good else ""
    return [f"Macro F1 of {', '.join(alone)}{together}."]


def alarm_lines(results: Mapping[str, Any]) -> list[str]:
    """
    Returns the scores of alarms in words, and a sentence on baselines, if there are any; nothing for a model without a
    watched class.
    """
    if "alarm" not in results:
        return []
    alarms, threshold = results["alarm"], results.get("watched_threshold")
    # A threshold that was chosen has as many digits as it needs.
    digits = "" if "wanted" in alarms else ".4g"
    least = "where it is predicted" if threshold is None else f"from a probability of {threshold:{digits}} on"
    watched = results["watched"]
    goal_words = wanted_words(alarms, watched)
    lines = [f"{watched}, the class to watch, is an alarm {least}{goal_words}: {measured_words(alarms)}"]
    kind, baselines = alarm_kind(alarms), []
    for name, score in alarms["compared_with"].items():
        apart = difference_of(score)
        apart = apart if apart == NO_DIFFERENCE else f"this model {apart}"
        baselines.append(f"{baseline_name(name, score)} {score[OTHER[kind]]:.3f} ({apart})")
    if baselines:
        lines.append(
            f"With alarms of the same {kind} or more, the {OTHER[kind]} of baselines is: {listed(baselines)}."
        )
    return lines


def better_alarm_lines(results: Mapping[str, Any]) -> list[str]:
    """
    Returns a sentence that names the best baseline whose alarms are surely better than the model's; empty if none are.
    """
    alarms = results.get("alarm", {})
    better = {name: score for name, score in alarms.get("compared_with", {}).items() if compared(score) == WORSE}
    if not better:
        return []
    kind = alarm_kind(alarms)
    share = OTHER[kind]
    name = max(better, key=lambda name: better[name][share])
    return [
        f"For alarms of {results['watched']} take {baseline_name(name, better[name])} ({share} "
        f"{better[name][share]:.3f} at the same {kind}, {alarms[share]:.3f} here)."
    ]


def alarm_rows(results: Mapping[str, Any]) -> list[list[str]]:
    """Returns a table of the scores of alarms and of baselines' alarms, the header first; empty without baselines."""
    alarms = results.get("alarm", {})
    if not alarms.get("compared_with"):
        return []
    rows = [
        [
            *(name, *(f"{score[share]:.3f}" if share in score else "" for share in OTHER), str(score["alarms"])),
            *(difference_of(score), to_text(score.get("difference_interval"), "+")),
        ]
        for name, score in {
            "this model": alarms,
            **{baseline_name(name, score): score for name, score in alarms["compared_with"].items()},
        }.items()
    ]
    kind = alarm_kind(alarms)
    title = f"Alarms of {results['watched']}, and of baselines with the same {kind} or more"
    return [[title, *OTHER, "on labelled posts", f"{OTHER[kind]} of this model above it by", "95 % interval"], *rows]


def cost_rows(results: Mapping[str, Any]) -> list[list[str]]:
    """
    The costs of alarms as the rows of a table, the header first; none for a model without a watched class, and for
    posts without labels.
    """
    costs = results.get("alarm", {}).get("costs", {})
    rows = [
        [
            words,
            span_words(costs[name]) if name.endswith("_seconds") else f"{costs[name]:.3f}",
            to_text(costs.get(f"{name}_interval")),
        ]
        for name, words in COSTS.items()
        if name in costs
    ]
    return [[f"The cost of alarms ({results['watched']})", "value", "95 % interval"], *rows] if rows else []


def cost_lines(results: Mapping[str, Any]) -> list[str]:
    """Returns a sentence on the runs of the class that alarms find and on false alarms; empty without such a run."""
    costs = results.get("alarm", {}).get("costs", {})
    if "found_changes" not in costs:
        return []
    name, unit = (PER_DAY, "a day") if PER_DAY in costs else (PER_HUNDRED, "of a hundred posts")
    share, false = (
        f"{costs[key]:.3f}" + (f" (95 % interval {to_text(ends)})" if (ends := costs.get(f"{key}_interval")) else "")
        for key in ("found_changes", name)
    )
    number = costs["num_changes"]
    found = f"{round(number * costs['found_changes'])} of the {number} runs of {results['watched']}"
    return [f"Alarms find {found}, a share of {share}; false alarms {unit}: {false}."]


def span_words(seconds: float) -> str:
    """A span of time in the largest unit that it fills, with one decimal."""
    unit = next((unit for unit, size in SPANS.items() if abs(seconds) >= size), "seconds")
    return f"{seconds / SPANS[unit]:.1f} {unit}"


def calibration_lines(results: Mapping[str, Any]) -> list[str]:
    """The calibration error in words, beside the range of the probabilities; none without probabilities."""
    if "expected_calibration_error" not in results:
        return []
    words = f"Calibration error {results['expected_calibration_error']:.3f}"
    if "confidence_range" in results:
        low, high = results["confidence_range"]
        words += f"; in 95 % of the posts the most probable class has a probability of {low:.2f} to {high:.2f}"
    return [f"{words}."]


def people_lines(results: Mapping[str, Any]) -> list[str]:
    """
    A sentence on the question that the scores answer, and one on people who are in the training beside others, if
    there are both; none where that is not known.
    """
    people = results.get("people")
    if people is None:
        return []
    known, count = people["in_training"] or "none", people["people"]
    lines = [f"These scores are about {people['question']}: {known} of the {count} people are also in the training."]
    states = results.get("states", {})
    words = []
    for name, whose in (("seen", "people in the training"), ("unseen", "new people")):
        part, scores = people.get(name, {}), []
        if "macro_f1" in part:
            of_all_but = f"F1 of all classes but {results['no_change']}"
            scores += [f"macro F1 {part['macro_f1']:.3f}", f"{of_all_but} {part['change_f1']:.3f}"]
        if part and (state_scores := states.get(name)):
            words_of_states = ", ".join(number_words(state_scores)) or f"macro F1 {state_scores['macro_f1']:.3f}"
            scores.append(f"states {words_of_states}")
        if part:
            words.append(f"{whose} ({part['people']}) {', '.join(scores) or 'without labels'}")
    return [*lines, f"Apart: {'; '.join(words)}."] if words else lines


def change_lines(results: Mapping[str, Any]) -> list[str]:
    """The F1 of all classes but one in words, as CLPsych 2026 ranks changes; none without labels."""
    if "change_f1" not in results:
        return []
    return [
        f"F1 of all classes but {results['no_change']}: {results['change_f1']:.3f}, the mean of "
        f"{results['change_post_f1']:.3f} over posts and {results['change_timeline_f1']:.3f} over timelines."
    ]


def number_words(states: Mapping[str, Any]) -> list[str]:
    """The correlations and errors of states within and between people in words; none of states that are classes."""
    words = []
    for name, where in (("within_people", "within people"), ("between_people", "between people")):
        if name in states:
            scores, count = states[name], states[name]["people"]
            r = f"r {scores['correlation']:.3f} ({count})" if "correlation" in scores else "no r"
            words.append(f"{where} {r}, error {scores['mean_absolute_error']:.3f}")
    if "composite_correlation" in states:
        words.append(f"composite r {states['composite_correlation']:.3f}")
    return words


def state_lines(results: Mapping[str, Any]) -> list[str]:
    """Returns the scores of the states in words, beside the most frequent state of training; empty without states."""
    states = results.get("states")
    if not states:
        return []
    baseline = states.get("most_frequent", {})
    always = f"always {baseline.get('state')}"
    titles = {"accuracy": "accuracy", "macro_f1": "macro F1", "mean_absolute_error": "mean absolute error"}
    words = [
        f"{title} {states[name]:.3f}" + (f" ({always}: {baseline[name]:.3f})" if name in baseline else "")
        for name, title in titles.items()
        if name in states
    ]
    if "correlation" in states:
        words.append(f"correlation of the mean {states['correlation']:.3f}")
    line = f"States of the {states['posts']} posts that have one: {', '.join([*words, *number_words(states)])}."
    return [
        f"{line} Their macro F1 {compared(baseline)} {always}." if baseline and compared(baseline) != BETTER else line
    ]


def confusion_rows(results: Mapping[str, Any]) -> list[list[str]]:
    """Returns how many posts of each given state are predicted as each state, the header first; empty without."""
    confusion = results.get("states", {}).get("confusion", {})
    rows = [[name, *map(str, counts)] for name, counts in confusion.items()]
    return [["State given, and in columns predicted", *confusion], *rows] if rows else []


def group_rows(results: Mapping[str, Any]) -> list[list[str]]:
    """The scores of the groups of a part as the rows of a table, the header first; none without groups."""
    rows = [
        [
            *(name, str(group["posts"]), str(group["timelines"])),
            *(f"{group['macro_f1']:.3f}" if "macro_f1" in group else "", to_text(group.get("macro_f1_interval"))),
            difference_of(group),
            to_text(group.get("difference_interval"), "+"),
        ]
        for name, group in results.get("groups", {}).items()
    ]
    return [["group", *GROUP_COLUMNS], *rows] if rows else []


def group_lines(results: Mapping[str, Any]) -> list[str]:
    """Sentences about the classes that groups lack."""
    return [
        f"The row of {name} is without {', '.join(group['missing_classes'])}: {name} or all others have no such post."
        for name, group in results.get("groups", {}).items()
        if "missing_classes" in group
    ]


def annotator_rows(results: Mapping[str, Any]) -> list[list[str]]:
    """The scores of the annotators of a part as the rows of a table, the header first; none without them."""
    people = results.get("annotators", {})
    if "together" not in people:
        return []
    rows = [
        [
            *(name, str(score["posts"]), f"{score['macro_f1']:.3f}", f"{score['model_macro_f1']:.3f}"),
            difference_of(score),
            to_text(score.get("difference_interval"), "+"),
        ]
        for name, score in {**people["each"], "together": people["together"]}.items()
    ]
    return [["annotator", *ANNOTATOR_COLUMNS], *rows]


def annotator_lines(results: Mapping[str, Any]) -> list[str]:
    """Sentences about the agreement of annotators, and about the model beside them; none without annotators."""
    people = results.get("annotators")
    if not people:
        return []
    alpha = f"Krippendorff's alpha {people['alpha']:.3f}" if "alpha" in people else "all labels are of one class"
    ties = f", {people['ties']} of them without a majority" if people["ties"] else ""
    line = f"{people['annotators']} annotators agree by {alpha} on {people['posts']} posts with several labels{ties}."
    if "together" not in people:
        return [line]
    score = people["together"]
    return [
        line,
        f"Against the majority of the others, one annotator has macro F1 {score['macro_f1']:.3f}, and this model on "
        f"the same posts {score['model_macro_f1']:.3f}: it {compared(score)} one annotator.",
    ]


def difference_of(score: Mapping[str, Any]) -> str:
    """A difference, or words for one whose interval contains 0; empty if it is not known."""
    if "difference" not in score:
        return ""
    return NO_DIFFERENCE if compared(score) == AS_GOOD else f"{score['difference']:+.3f}"


def test_summary(results: Mapping[str, Any], config: PreTrainedConfig | None = None) -> list[str]:
    """
    A summary of a model's test in sentences: its macro F1, its baselines, other [`remarks`], which experts decide, its
    alarms, its calibration, its annotators, and the scores of its states. With the model's configuration also
    [`alarm_sentence`], the current rule of its alarms.
    """
    alarm = config and alarm_sentence(config)
    last = [f"Alarms: {alarm}"] if alarm else []
    if "compared_with" not in results:
        unknown = "No score is known: this model was not tested on posts with labels, or its results lie elsewhere."
        return [unknown, *last]
    posts = f"{results['labelled_posts']} labelled posts of {results['timelines']} timelines"
    sentences = [f"Macro F1 {macro_f1_of(results)} on the {posts} of its test."]
    sentences += [*baseline_sentences(results, BETTER), *remarks(results), *deciding_lines(results)]
    sentences += alarm_lines(results)
    sentences += [*cost_lines(results), *last]
    sentences += [*calibration_lines(results), *annotator_lines(results), *state_lines(results)]
    return [*sentences, *people_lines(results)]


def describe_test(model: str, config: PreTrainedConfig | None = None, **downloads: Any) -> list[str]:
    """
    Describes the results of a model's own test.

    Args:
        model (`str`): The model's folder or Hub id. Its results lie beside its weights.
        config (`PreTrainedConfig`, *optional*): The model's configuration. With it the last sentence says from which
            probability on a post is an alarm.
        downloads: Arguments of `hf_hub_download`, such as `token`.

    Returns:
        `list[str]`: Sentences ([`test_summary`]); of a model without results, that no score is known.
    """
    return test_summary(read_test(model, **downloads), config)


def training_line(results: Mapping[str, Any]) -> str:
    """The epochs, time and loss of a training, in a line."""
    epochs = f"{results['epochs']:.1f} epochs in " if "epochs" in results else ""
    return f"train: {epochs}{results['seconds']:.0f} s, loss {results['loss']:.3f}"


def count_line(part: str, results: Mapping[str, Any]) -> str:
    """The number of posts of a split, in words."""
    posts, labelled = results["posts"], results["labelled_posts"]
    share = "" if labelled == posts else f", {labelled or 'none'} labelled"
    part += " (held out in turn from training)" if results.get("held_out_in_turn") else ""
    return f"{part}: {posts} posts of {results['timelines']} timelines{share}"


def results_line(part: str, results: Mapping[str, Any]) -> str:
    """The results of a split, in a line."""
    counts = count_line(part, results)
    return f"{counts}; macro F1 {macro_f1_of(results)}" if "macro_f1" in results else counts


def results_table(part: str, results: Mapping[str, Any]) -> str:
    """A table of the results of a split, from [`group_by_class`] with the scores of [`score_part`], on one screen."""
    counts = count_line(part, results)
    for name, words in (("posts_per_second", "posts"), ("embedded_posts_per_second", "embedded posts")):
        if name in results:
            counts += f"; {results[name]:.0f} {words} a second"
    if "classes" not in results:
        return "\n\n".join([counts, *state_lines(results)])
    counts = "\n".join([counts, *people_lines(results)])
    titled = [score for score in change_detection().SCORES if score.title]
    titles = {score.name: score.title for score in titled}
    columns = [score.name for score in titled if score.by_class]
    classes = pd.DataFrame.from_dict(results["classes"], orient="index")
    classes = classes.reindex(columns=[*columns, "posts"]).rename(columns=titles)
    rows = {"this model": [f"{results['macro_f1']:.3f}", to_text(results.get("macro_f1_interval")), "", ""]}
    for name, score in results["compared_with"].items():
        interval = to_text(score.get("difference_interval"), "+")
        rows[baseline_name(name, score)] = [f"{score['macro_f1']:.3f}", "", difference_of(score), interval]
    scores = pd.DataFrame.from_dict(rows, orient="index", columns=SCORE_COLUMNS)
    last = [
        *change_lines(results),
        *alarm_lines(results)[:1],
        *calibration_lines(results),
        *deciding_lines(results),
        *expert_lines(results),
    ]
    last += [*state_lines(results), *group_lines(results), *remarks(results)]
    paragraphs = [counts, classes.to_string(float_format="{:.3f}".format), scores.to_string()]
    if rows := alarm_rows(results):
        paragraphs.append(f"{rows[0][0]}:\n{to_table(rows)}")
    if rows := cost_rows(results):
        paragraphs.append(f"{rows[0][0]}:\n{to_table(rows)}")
    if rows := confusion_rows(results):
        paragraphs.append(f"{rows[0][0]}:\n{to_table(rows)}")
    if rows := group_rows(results):
        paragraphs.append(to_table(rows))
    if lines := annotator_lines(results):
        paragraphs.append("\n".join(lines))
    if rows := annotator_rows(results):
        paragraphs.append(to_table(rows))
    paragraphs.append("\n".join(last))
    return "\n\n".join(paragraphs).rstrip()


def macro_f1_of(results: Mapping[str, Any]) -> str:
    """The macro F1 of a split, with its interval if there is one."""
    interval = results.get("macro_f1_interval")
    return f"{results['macro_f1']:.3f}" + (f" (95 % interval {to_text(interval)})" if interval else "")


def to_text(interval: Sequence[float] | None, sign: str = "") -> str:
    """An interval in words; empty without one."""
    return "" if interval is None else " to ".join(f"{end:{sign}.3f}" for end in interval)
