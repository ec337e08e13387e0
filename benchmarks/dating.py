"""
When was a sentence written? The two periods of the speeches of US presidents, by naive Bayes and by time tokens.

    python benchmarks/dating.py --model_name_or_path MINILM --speeches sentences.tsv.gz --output_dir out

A fifth of the speeches is kept for the test, 1,000 sentences of each period; no speech is in both parts.
"""

import argparse
import csv
import gzip
import json
import random
import subprocess
import sys
from pathlib import Path

from sklearn.feature_extraction.text import CountVectorizer
from sklearn.metrics import accuracy_score
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline
from workload import show


ROOT = Path(__file__).parents[1]
TIMES = ("1810-1860", "1960-2010")


def period(year: str) -> str | None:
    for name in TIMES:
        first, last = name.split("-")
        if first <= year <= last:
            return name
    return None


def split(path: str) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Sentences to train on, and to test on."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    rows = [{**row, "time": period(row["year"])} for row in rows if period(row["year"])]
    speeches = sorted({row["doc_id"] for row in rows})
    random.Random(42).shuffle(speeches)
    kept = set(speeches[: len(speeches) // 5])
    generator, test = random.Random(7), []
    for time in TIMES:
        test += generator.sample([row for row in rows if row["doc_id"] in kept and row["time"] == time], 1000)
    return [row for row in rows if row["doc_id"] not in kept], test


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model_name_or_path", required=True)
    parser.add_argument("--speeches", required=True, help="A table with the columns `year`, `doc_id` and `text`.")
    parser.add_argument("--output_dir", type=Path, required=True)
    args = parser.parse_args()
    train, test = split(args.speeches)

    texts, times = ([[row[name] for row in part] for part in (train, test)] for name in ("text", "time"))
    bayes = make_pipeline(CountVectorizer(), MultinomialNB()).fit(texts[0], times[0])
    show(benchmark="dating", method="naive Bayes", accuracy=accuracy_score(times[1], bayes.predict(texts[1])))

    args.output_dir.mkdir(parents=True, exist_ok=True)
    files = []
    for name, part in (("train", train), ("test", test)):
        files.append(args.output_dir / f"{name}.jsonl")
        lines = [json.dumps({name: row[name] for name in ("time", "text")}) for row in part]
        files[-1].write_text("\n".join(lines), encoding="utf-8")
    command = [sys.executable, ROOT / "run_temporal_mlm.py", ROOT / "configuration" / "temporal_dating.yaml"]
    command += ["--model_name_or_path", args.model_name_or_path, "--output_dir", args.output_dir / "model"]
    command += ["--train_files", files[0], "--test_files", files[1], "--do_predict", "--report_to", "none"]
    subprocess.run([*map(str, command)], check=True)
    results = json.loads((args.output_dir / "model" / "all_results.json").read_text())
    show(benchmark="dating", method="time tokens", accuracy=results["predict_accuracy"])


if __name__ == "__main__":
    main()
