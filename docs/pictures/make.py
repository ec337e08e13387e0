"""
Makes the pictures of the docs: models learn from made-up texts, and a browser opens the pages of what they found.

    python docs/pictures/make.py --model_name_or_path sentence-transformers/all-MiniLM-L6-v2
"""

import argparse
import subprocess
import sys
from pathlib import Path

import pandas as pd
from diaries import diaries
from sentences import PERIODS, SENSES, sentences


ROOT = Path(__file__).parents[2]
OUTPUT = ROOT / "outputs" / "pictures"


def run(script: str, *arguments: object):
    subprocess.run([sys.executable, ROOT / script, *map(str, arguments)], check=True, cwd=ROOT)


def find_changes(encoder: str):
    """A model of diaries, and its page."""
    OUTPUT.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(diaries(110, seed=0)).to_csv(OUTPUT / "diaries.csv", index=False)
    asked = ["--do_train", "--do_eval", "--do_predict", "--view"]
    files = ["--train_file", OUTPUT / "diaries.csv", "--output_dir", OUTPUT / "mood"]
    run("run_glue_style.py", "--model_name_or_path", encoder, *files, *asked)


def find_words(encoder: str):
    """The words of two periods, and their page."""
    texts = [OUTPUT / f"{period}.txt" for period in PERIODS]
    for number, path in enumerate(texts):
        path.write_text("\n".join(sentences(number, 150)), encoding="utf-8")
    (OUTPUT / "words.txt").write_text("\n".join(SENSES), encoding="utf-8")
    words = ["--targets", OUTPUT / "words.txt", "--num_clusters", 2, "--output_dir", OUTPUT / "change"]
    run("run_semantic_change.py", "--model_name_or_path", encoder, "--corpora", *texts, *words)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model_name_or_path", default="sentence-transformers/all-MiniLM-L6-v2")
    encoder = parser.parse_args().model_name_or_path
    find_changes(encoder)
    find_words(encoder)


if __name__ == "__main__":
    main()
