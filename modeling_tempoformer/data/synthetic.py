"""Synthetic timelines in which the label depends on the time between posts."""

import argparse
import csv
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any


GOOD = ["calm", "glad", "fine", "hopeful"]
BAD = ["sad", "lost", "afraid", "tired"]
FILLERS = ["today", "again", "feeling", "so", "at", "home", "really", "just", "with", "friends"]
WORDS = [*GOOD, *BAD, *FILLERS]
MINUTE, DAY = 60.0, 86400.0


def synthetic_posts(num_timelines: int, seed: int, posts_per_timeline: int = 16) -> Iterator[dict[str, Any]]:
    """
    Posts of a good or a bad mood. Gaps are minutes or days, by chance and whatever the posts say. A post is a Switch
    if its mood is bad and it comes within minutes of the post before it: the order of the posts alone cannot tell.
    Rows of `timeline_id`, `timestamp` (seconds), `text`, `label`.
    """
    generator = random.Random(seed)
    for timeline in range(num_timelines):
        timestamp = generator.uniform(1.6e9, 1.7e9)
        for number in range(posts_per_timeline):
            quick = generator.random() < 0.5
            timestamp += generator.uniform(1, 20) * (MINUTE if quick else DAY)
            good = generator.random() < 0.5
            words = generator.choices(FILLERS, k=generator.randint(2, 5))
            words.insert(generator.randint(0, len(words)), generator.choice(GOOD if good else BAD))
            switch = number > 0 and quick and not good
            yield {
                "timeline_id": f"person-{timeline}",
                "timestamp": round(timestamp),
                "text": " ".join(words),
                "label": "Switch" if switch else "No-Switch",
            }


def main():
    parser = argparse.ArgumentParser(description="Write synthetic timelines to train.csv, validation.csv, test.csv.")
    parser.add_argument("output_dir", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.output_dir.mkdir(parents=True, exist_ok=True)
    for part, (name, size) in enumerate({"train": 200, "validation": 40, "test": 60}.items()):
        posts = list(synthetic_posts(size, seed=3 * args.seed + part))
        with (args.output_dir / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(posts[0]))
            writer.writeheader()
            writer.writerows(posts)


if __name__ == "__main__":
    main()
