r"""Scores words by the measures of langchange on given vectors, for `benchmarks.words measures`.

    python3 -m venv peers && peers/bin/pip install langchange==0.2.0
    python -m benchmarks.words measures --model_name_or_path MINILM --speeches speeches.csv --dwug dwug_en_v3 \
        --truth truth/graded.txt --langchange_python peers/bin/python

It needs none of this package. The first argument is a file of vectors, whose arrays are named "number of the
sample/word/0" (before) and 1 (after); the second one is the table that it writes.
"""

import sys
import warnings

import numpy as np
import pandas as pd
from languagechange.models.change.metrics import APD, JSD, PRT
from languagechange.models.change.widid import WiDiD
from sklearn.cluster import AffinityPropagation, AgglomerativeClustering


# The clustering of its README
COMPLETE = {"n_clusters": None, "distance_threshold": 0.5, "linkage": "complete", "metric": "cosine"}


def score(before: np.ndarray, after: np.ndarray) -> dict[str, float]:
    """Returns the measures of a word, from its vectors at two times `(usages, width)`."""
    labels, _, prototypes = WiDiD().compute_scores([before, after])
    scores = {
        "APD": APD().compute_scores(before, after),
        "PRT": PRT().compute_scores(before, after),
        "WiDiD, APD of prototypes": float(prototypes.series[-1]),
        "WiDiD, JSD": JSD().compute_scores_from_labels(*labels),
    }
    for name, algorithm in {
        "affinity propagation": AffinityPropagation(random_state=0),
        "complete linkage": AgglomerativeClustering(**COMPLETE),
    }.items():
        scores[f"JSD, {name}"] = JSD().compute_scores(before, after, algorithm)
    return scores


def main():
    vectors_file, table_file = sys.argv[1:]
    vectors, rows = np.load(vectors_file), []
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="sklearn")
        for name in vectors.files:
            key, _, side = name.rpartition("/")
            if side == "0":
                sample, _, word = key.partition("/")
                rows.append({"sample": sample, "word": word, **score(vectors[name], vectors[f"{key}/1"])})
    pd.DataFrame(rows).to_csv(table_file, index=False)


if __name__ == "__main__":
    main()
