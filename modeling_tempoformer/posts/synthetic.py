"""Writes synthetic timelines in which the label depends on the time between posts."""

import argparse
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd


GOOD = ["calm", "glad", "fine", "hopeful"]
BAD = ["sad", "lost", "afraid", "tired"]
FILLERS = ["today", "again", "feeling", "so", "at", "home", "really", "just", "with", "friends"]
WORDS = [*GOOD, *BAD, *FILLERS]
MINUTE, DAY = 60.0, 86400.0


def synthetic_posts(num_timelines: int, seed: int, posts_per_timeline: int = 16) -> Iterator[dict[str, Any]]:
    """
    Yields posts with `timeline_id`, `timestamp` (seconds), `text` and `label`. Each has a good or a bad mood, and gaps
    of minutes or days that do not depend on the mood. A post is a Switch if its mood is bad and it comes within
    minutes of the post before it, so the order of posts does not determine the label.
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
            label = "Switch" if number > 0 and quick and not good else "No-Switch"
            post = {"timeline_id": f"person-{timeline}", "timestamp": round(timestamp)}
            yield {**post, "text": " ".join(words), "label": label}


def main():
    parser = argparse.ArgumentParser(description="Write synthetic timelines to train.csv, validation.csv, test.csv.")
    parser.add_argument("output_dir", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.output_dir.mkdir(parents=True, exist_ok=True)
    for index, (name, size) in enumerate({"train": 200, "validation": 40, "test": 60}.items()):
        posts = pd.DataFrame(synthetic_posts(size, seed=3 * args.seed + index))
        # Each person is in one split only.
        posts["timeline_id"] = f"{name}-" + posts["timeline_id"]
        posts.to_csv(args.output_dir / f"{name}.csv", index=False)


if __name__ == "__main__":
    main()
