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

from ..timeline_tempoformer import Timeline
from .method_names import rival_name
from .metrics import change_detection, compute_scores
from .predictions import all_labels, labelled_posts
from .rivals import compare, compare_with


RESULTS = "all_results.json"
# Names in the file that differ from those of the metrics
RENAMED = {"support": "posts", "runtime": "seconds", "epoch": "epochs", "samples_per_second": "rows_per_second"}
TROUBLESHOOTING = "docs/troubleshooting.md"
# A score of so few timelines depends on which timelines they are.
FEW_TIMELINES = 4
# Two methods whose difference is less than its interval
NO_DIFFERENCE = "cannot be told apart"
BETTER, WORSE, AS_GOOD = "is better than", "is worse than", f"{NO_DIFFERENCE} from"
EXPERTS = {"network": "the network", "trees": "its trees", "states": "the change of states"}
SCORE_COLUMNS = ["macro F1", "95 % interval", "this model above it by", "95 % interval"]

logger = logging.getLogger(__name__)


def score_part(
    timelines: Sequence[Timeline],
    predictions: np.ndarray,
    probabilities: np.ndarray,
    names: list[str],
    train: Sequence[Timeline] | None = None,
    vectors: tuple[np.ndarray, np.ndarray] | None = None,
    experts: Mapping[str, tuple[float, np.ndarray]] | None = None,
) -> dict[str, Any]:
    """
    The number of posts of a split; if any is labelled, also its [`compute_scores`] and its [`compare`], and for each
    of the model's `experts` its `weight` and its [`compare_with`]. `predictions` and `probabilities` are those of
    [`decide_posts`]; `train` and `vectors` are as in [`compare`]; `experts` are weights and, of each expert alone,
    class ids (posts,).
    """
    posts = labelled_posts(timelines, predictions, names, probabilities)
    counts = {"posts": len(predictions), "labelled_posts": len(posts.labels), "timelines": len(timelines)}
    if not len(posts.labels):
        return counts
    scores = counts | compute_scores(posts) | compare(posts, timelines, train, vectors)
    if experts is not None:
        labelled = all_labels(timelines) >= 0
        scores["experts"] = {
            name: {"weight": weight, **compare_with(posts, ids[labelled])} for name, (weight, ids) in experts.items()
        }
    return scores


def group_by_class(metrics: Mapping[str, Any], prefix: str, names: list[str]) -> dict[str, Any]:
    """Groups the Trainer's metrics of a split: without their prefix, and those of a class in a dict of its own."""
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
    """A note that all predictions are one class, or that macro F1 does not beat guessing each class by its share."""
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
    return None


def warn_of_worthless(metrics: dict[str, float], names: list[str]):
    """Warns if a model with these `eval_` metrics has learned nothing ([`verdict`])."""
    if note := verdict(group_by_class(metrics, "eval", names)):
        logger.warning(
            "The model that is kept has learned nothing that shows: on the validation split %s. What helps: %s",
            note,
            TROUBLESHOOTING,
        )


def remarks(results: Mapping[str, Any]) -> list[str]:
    """Sentences about results that are worth little; none if all is well, or if no post has a label."""
    note = verdict(results)
    sentences = [f"{note[0].upper()}{note[1:]}. What helps: {TROUBLESHOOTING}"] if note else []
    no_better: dict[str, list[str]] = {}
    for name, score in results.get("compared_with", {}).items():
        if (words := compared(score)) != BETTER:
            no_better.setdefault(words, []).append(rival_name(name, score))
    sentences += [f"This model {words} {' and '.join(rivals)}." for words, rivals in no_better.items()]
    counts = {name: scores.get("timelines_of_half") for name, scores in results.get("classes", {}).items()}
    if few := [f"{name}: {count:.0f}" for name, count in counts.items() if count and count <= FEW_TIMELINES]:
        sentences.append(
            f"Half of a class is in few of the {results['timelines']} timelines ({', '.join(few)}): with others the "
            "score may differ. Do not trust one split: cross-validation tests on all timelines."
        )
    return sentences


def compared(score: Mapping[str, Any]) -> str:
    """
    Words for the difference between a model and what it is compared with. Without an interval, of a single timeline,
    nothing can be said.
    """
    low, high = score.get("difference_interval", (-math.inf, math.inf))
    if low > 0:
        return BETTER
    return WORSE if high < 0 else AS_GOOD


def expert_lines(results: Mapping[str, Any]) -> list[str]:
    """The macro F1 of each of the model's experts alone, in words; none without experts."""
    if "experts" not in results:
        return []
    experts = {f"{EXPERTS[name]} alone": score for name, score in results["experts"].items()}
    alone = [f"{name} {score['macro_f1']:.3f} (weight {score['weight']:.2f})" for name, score in experts.items()]
    as_good = [name for name, score in experts.items() if compared(score) == AS_GOOD]
    together = f"; all together {AS_GOOD} {' and '.join(as_good)}" if as_good else ""
    return [f"macro F1 of {', '.join(alone)}{together}"]


def state_lines(results: Mapping[str, Any]) -> list[str]:
    """The scores of the states in words, beside those of the most frequent state of training; none without states."""
    states = results.get("states")
    if not states:
        return []
    rival = states.get("most_frequent", {})
    always = f"always {rival.get('state')}"
    titles = {"accuracy": "accuracy", "macro_f1": "macro F1", "mean_absolute_error": "mean absolute error"}
    words = [
        f"{title} {states[name]:.3f}" + (f" ({always}: {rival[name]:.3f})" if name in rival else "")
        for name, title in titles.items()
        if name in states
    ]
    if "correlation" in states:
        words.append(f"correlation of the mean {states['correlation']:.3f}")
    line = f"States of the {states['posts']} posts that have one: {', '.join(words)}."
    return [f"{line} Their macro F1 {compared(rival)} {always}." if rival and compared(rival) != BETTER else line]


def test_summary(results: Mapping[str, Any]) -> list[str]:
    """
    A summary of a model's test in sentences: its macro F1, that of its rivals, the scores of its states, and the
    [`remarks`].
    """
    if "compared_with" not in results:
        return ["No score is known: this model was not tested on posts with labels, or its results lie elsewhere."]
    rivals = [f"{rival_name(*each)} {each[1]['macro_f1']:.3f}" for each in results["compared_with"].items()]
    posts = f"{results['labelled_posts']} labelled posts of {results['timelines']} timelines"
    score = f"Macro F1 {macro_f1_of(results)} on the {posts} of its test; {', '.join(rivals)}."
    return [score, *seed_lines(results), *state_lines(results), *remarks(results)]


def seed_lines(results: Mapping[str, Any]) -> list[str]:
    """The macro F1 of each seed in words, with mean and standard deviation; none for a single seed."""
    if "seeds" not in results:
        return []
    seeds, score = results["seeds"], results["seeds"]["macro_f1"]
    each = ", ".join(f"{value:.3f} ({seed})" for seed, value in zip(seeds["seeds"], score["values"], strict=True))
    return [f"Macro F1, {mean_of_seeds(seeds)}: {mean_and_spread(score)} (standard deviation); of each: {each}."]


def mean_of_seeds(seeds: Mapping[str, Any]) -> str:
    """The name of the scores of several seeds, from [`score_seeds`]."""
    return f"mean of {len(seeds['seeds'])} seeds"


def mean_and_spread(score: Mapping[str, Any]) -> str:
    """The mean of a score over seeds, and its standard deviation."""
    return f"{score['mean']:.3f} ± {score['std']:.3f}"


def training_line(results: Mapping[str, Any]) -> str:
    """The epochs, time and loss of a training, in a line."""
    epochs = f"{results['epochs']:.1f} epochs in " if "epochs" in results else ""
    return f"train: {epochs}{results['seconds']:.0f} s, loss {results['loss']:.3f}"


def count_line(part: str, results: Mapping[str, Any]) -> str:
    """The number of posts of a split, in words."""
    posts, labelled = results["posts"], results["labelled_posts"]
    share = "" if labelled == posts else f", {labelled or 'none'} labelled"
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
    titled = [score for score in change_detection().SCORES if score.title]
    titles = {score.name: score.title for score in titled}
    columns = [score.name for score in titled if score.by_class]
    classes = pd.DataFrame.from_dict(results["classes"], orient="index")
    classes = classes.reindex(columns=[*columns, "posts"]).rename(columns=titles)
    rows = {"this model": [f"{results['macro_f1']:.3f}", to_text(results.get("macro_f1_interval")), "", ""]}
    if (seeds := results.get("seeds")) is not None:
        rows[mean_of_seeds(seeds)] = [mean_and_spread(seeds["macro_f1"]), "", "", ""]
        spreads = {name: mean_and_spread(score) for name, score in seeds["classes"].items()}
        classes.insert(len(columns), f"F1, {mean_of_seeds(seeds)}", pd.Series(spreads))
    for name, score in results["compared_with"].items():
        what, interval = rival_name(name, score), to_text(score.get("difference_interval"), "+")
        difference = NO_DIFFERENCE if compared(score) == AS_GOOD else f"{score['difference']:+.3f}"
        rows[what] = [f"{score['macro_f1']:.3f}", "", difference, interval]
    scores = pd.DataFrame.from_dict(rows, orient="index", columns=SCORE_COLUMNS)
    last = [f"{title} {results[name]:.3f}" for name, title in titles.items() if name in results]
    last += [*seed_lines(results), *expert_lines(results), *state_lines(results), *remarks(results)]
    paragraphs = [counts, classes.to_string(float_format="{:.3f}".format), scores.to_string(), "\n".join(last)]
    return "\n\n".join(paragraphs).rstrip()


def macro_f1_of(results: Mapping[str, Any]) -> str:
    """The macro F1 of a split, with its interval if there is one."""
    interval = results.get("macro_f1_interval")
    return f"{results['macro_f1']:.3f}" + (f" (95 % interval {to_text(interval)})" if interval else "")


def to_text(interval: Sequence[float] | None, sign: str = "") -> str:
    """An interval in words; empty without one."""
    return "" if interval is None else " to ".join(f"{end:{sign}.3f}" for end in interval)
