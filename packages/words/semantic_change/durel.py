"""Usages in the layout of DURel, whose annotators judge pairs of usages, and these judgements beside a model's."""

import hashlib
import math
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import spearmanr
from sklearn.preprocessing import normalize
from transformers.utils import logging

from modeling_tempoformer.common.files import written_whole

from .citations import sentence_of
from .corpora import read_tsv
from .reading.passages import split_tag
from .usages import Usage


logger = logging.get_logger(__name__)

# It holds texts, so its name begins with an underscore: such files are never pushed.
USES = "_durel_uses.csv"
JUDGED = "judged.csv"
# A correlation of fewer pairs tells nothing.
MIN_PAIRS = 3


def identify(word: str, usage: Usage) -> str:
    """Returns the identifier of a usage, which does not depend on the sample."""
    parts = (usage.time, usage.date, usage.source, usage.text, usage.start)
    return f"{word}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:12]}"


def write_uses(folder: Path, usages: Mapping[str, list[Usage]]):
    """Writes the usages of words as DURel's uses: a table with tabs, in which quotes are ordinary characters."""
    rows = [
        "lemma pos date grouping identifier description context indexes_target_token indexes_target_sentence".split()
    ]
    for word, usages_of_word in usages.items():
        # Nothing tells apart texts that are equal in all these.
        for identifier, usage in {identify(word, usage): usage for usage in usages_of_word}.items():
            left, form, right = sentence_of(usage)
            text = left + form + right
            about = [word, split_tag(word)[1].lstrip("_"), usage.date, usage.time, identifier, usage.source]
            rows.append([*about, text, f"{len(left)}:{len(left) + len(form)}", f"0:{len(text)}"])
    with written_whole(folder / USES) as partial:
        # One character for each, so that the places stay.
        lines = ("\t".join(re.sub(r"\s", " ", cell) for cell in row) for row in rows)
        partial.write_text("\n".join([*lines, ""]), encoding="utf-8")


def read_judgments(path: str | Path) -> pd.DataFrame:
    """
    Reads judgements of pairs of usages.

    Args:
        path (`str` or `Path`): A file of DURel's judgements, or a folder with files `judgments.csv`: tables with tabs
            and the columns `identifier1`, `identifier2` and `judgment`, from 1 (unrelated) to 4 (identical). 0 is no
            decision.

    Returns:
        A table with a row for each pair: `one` and `other`, the identifiers in alphabetical order, `judgment`, the
        mean of its judgements, and `count`, their number. Raises a `ValueError` that names the first line of another
        form, or if there is no judgement.
    """
    path = Path(path)
    files = sorted(path.rglob("judgments.csv")) if path.is_dir() else [path]
    if not files:
        raise ValueError(f"{path} has no file judgments.csv.")
    rows, num_undecided = [], 0
    for where, row in (each for file in files for each in read_tsv(file)):
        try:
            pair, judgment = sorted((row["identifier1"], row["identifier2"])), float(row["judgment"])
        except KeyError as problem:
            raise ValueError(
                f"{where}: the column {problem} of DURel's judgements, a table with tabs, is missing."
            ) from None
        except ValueError:
            raise ValueError(f"{where}: the judgement {row['judgment']!r} is not a number.") from None
        if 1 <= judgment <= 4:
            rows.append((*pair, judgment))
        elif judgment == 0 or math.isnan(judgment):
            num_undecided += 1
        else:
            raise ValueError(f"{where}: the judgement {row['judgment']} is not from 1 to 4, or 0 without a decision.")
    if num_undecided:
        logger.warning(f"{path}: {num_undecided:,} judgements without a decision are left out.")
    if not rows:
        raise ValueError(f"{path} has no judgement from 1 to 4.")
    pairs = pd.DataFrame(rows, columns=["one", "other", "judgment"]).groupby(["one", "other"])["judgment"]
    return pairs.agg(["mean", "size"]).set_axis(["judgment", "count"], axis=1).reset_index()


def compare_with_judgments(
    judgments: pd.DataFrame, usages: Mapping[str, list[Usage]], vectors: Mapping[str, np.ndarray]
) -> pd.DataFrame:
    """
    Compares the similarity of usages to a model with people's judgements.

    Args:
        judgments: The table of [`read_judgments`]. Usages are known by their [`identify`], or by their source if only
            one usage has it, as in DWUG data sets. A warning counts the pairs with another usage.
        usages, vectors: The usages of each word and their vectors.

    Returns:
        A table with a row for each word with a pair: `word`, `pairs`, `judgments`, the mean `judgment`, the mean
        `cosine`, and `spearman`, the rank correlation of mean judgements and cosines; NaN for fewer than three pairs
        or if all have one judgement.
    """
    rows, is_read = [], np.zeros(len(judgments), dtype=bool)
    for word, usages_of_word in usages.items():
        unit, place = normalize(vectors[word].astype(np.float64)), places_of(word, usages_of_word)
        is_of_word = (judgments["one"].isin(place) & judgments["other"].isin(place)).to_numpy()
        known, is_read = judgments[is_of_word], is_read | is_of_word
        if known.empty:
            continue
        one, other = (unit[known[side].map(place)] for side in ("one", "other"))
        cosines, means = (one * other).sum(axis=1), known["judgment"].to_numpy()
        is_told = len(known) >= MIN_PAIRS and np.ptp(means) > 0 and np.ptp(cosines) > 0
        rows.append(
            {
                **{"word": word, "pairs": len(known), "judgments": int(known["count"].sum())},
                **{"judgment": means.mean(), "cosine": cosines.mean()},
                "spearman": float(spearmanr(means, cosines).statistic) if is_told else math.nan,
            }
        )
    table = pd.DataFrame(rows, columns=["word", "pairs", "judgments", "judgment", "cosine", "spearman"])
    if unknown := np.count_nonzero(~is_read):
        logger.warning(
            f"{unknown:,} of {len(judgments):,} judged pairs are left out, because a usage is not in the sample: give "
            "the corpora, --num_samples and --seed of the run that wrote the uses."
        )
    return table


def places_of(word: str, usages: list[Usage]) -> dict[str, int]:
    """Returns the place of each usage, by its identifier and by its source if no other usage has it."""
    by_source: dict[str, list[int]] = {}
    for place, usage in enumerate(usages):
        by_source.setdefault(usage.source, []).append(place)
    alone = {source: places[0] for source, places in by_source.items() if len(places) == 1}
    return alone | {identify(word, usage): place for place, usage in enumerate(usages)}
