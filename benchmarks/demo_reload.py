"""Loads a saved model as anybody would, without this package, and shows one timeline with its predicted changes."""

import csv
import sys
from datetime import UTC, datetime

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils import logging


def age(seconds: int) -> str:
    """A span of time in its largest unit."""
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            count = seconds // length
            return f"{count} {unit}{'s' if count > 1 else ''} later"
    return f"{seconds} seconds later"


def main(folder: str, file: str):
    logging.disable_progress_bar()
    model = AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=True)
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    with open(file, encoding="utf-8", newline="") as lines:
        posts = list(csv.DictReader(lines))
    posts = [post for post in posts if post["timeline_id"] == posts[0]["timeline_id"]]
    times = torch.tensor([int(post["timestamp"]) for post in posts])
    index = torch.arange(len(posts))[:, None] + torch.arange(1 - model.config.window, 1)
    elapsed = (times[:, None] - times[index.clamp_min(0)]).masked_fill(index < 0, 0).float()
    inputs = tokenizer([post["text"] for post in posts], padding=True, return_tensors="pt")
    with torch.no_grad():
        logits = model(
            inputs["input_ids"][None],
            inputs["attention_mask"][None],
            stream_index=index.clamp_min(-1)[None],
            elapsed=elapsed[None],
        ).logits[0]
    switch = logits.softmax(-1)[:, model.config.label2id["Switch"]]
    print(f"\n{posts[0]['timeline_id']}, read by a model loaded with trust_remote_code=True\n")
    for number, (post, probability) in enumerate(zip(posts, switch.tolist(), strict=True)):
        seconds = int(times[number] - times[number - 1]) if number else 0
        when = age(seconds) if number else f"{datetime.fromtimestamp(int(times[0]), UTC):%d %b %Y}"
        mark = ">> SWITCH" if probability > 0.5 else ""
        bar = "#" * round(10 * probability)
        print(f"  {when:>16}  {post['text']:<42} {bar:<10} {probability:4.0%}  {mark:<9} (label: {post['label']})")


if __name__ == "__main__":
    main(*sys.argv[1:])
