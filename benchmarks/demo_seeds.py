"""The demo's task over three seeds of data and training: JSON lines, then a table of macro F1."""

import json
import statistics
from pathlib import Path
from tempfile import TemporaryDirectory

from demo import VARIANTS, train, write_data


SEEDS = range(3)


def main():
    scores = {kind: [] for kind in VARIANTS}
    with TemporaryDirectory() as folder:
        for seed in SEEDS:
            files = write_data(Path(folder) / f"data-{seed}", seed)
            for kind in VARIANTS:
                scores[kind].append(train(kind, files, Path(folder) / f"{kind}-{seed}", seed))
    for kind, values in scores.items():
        for seed, value in zip(SEEDS, values, strict=True):
            print(json.dumps({"stream_attention": kind, "seed": seed, "macro_f1": value}))
    for kind, values in scores.items():
        each = "  ".join(f"{100 * value:5.1f}" for value in values)
        print(f"  {VARIANTS[kind]:<22} {each}   mean {100 * statistics.mean(values):5.1f}")


if __name__ == "__main__":
    main()
