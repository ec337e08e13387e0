"""
Makes the batches of `StreamCollator` in NumPy, to serve a model as ONNX without PyTorch. Read it, copy it.

    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file("my_model/tokenizer.json")
    tokenizer.no_padding()
    tokenizer.enable_truncation(128)
    posts = [encoding.ids for encoding in tokenizer.encode_batch(["so happy today", "so tired"])]
    batch = collate([{"input_ids": posts, "timestamps": [1714554000, 1714687800]}], window=20)
    session = onnxruntime.InferenceSession("model.onnx")
    inputs = {given.name: batch[given.name] for given in session.get_inputs()}
    (logits,) = session.run(["logits"], inputs)  # (timelines, posts, classes)

Inputs are not checked: times must be seconds in the order of the posts, and each post must have a token. The model's
config.json holds its calibration: divide the logits by `temperature`, and take the class with the largest probability
/ threshold.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np


# The fields of a row that `collate` reads. It makes neither `speaker_posts` nor `earlier_states`.
READ = {"input_ids", "timestamps", "num_context", "num_before", "start_time"}


def collate(rows: Sequence[dict[str, Any]], window: int, pad_token_id: int = 0) -> dict[str, np.ndarray]:
    """
    Makes the inputs of a model that classifies the posts of timelines, in the shapes of `StreamCollator`.

    Args:
        rows: A dict for each timeline. `input_ids` is a list of token ids for each post. `timestamps` are the posts'
            seconds; without them the model must have been trained without times. The first `num_context` posts (by
            default 0) are context only. If a timeline is long, give its last posts, with `num_before`, the number of
            posts left out (by default 0), and `start_time`, the seconds of its first post.
        window, pad_token_id (`int`): The values in config.json of the model and of its tokenizer.
    """
    if unread := sorted(set().union(*rows) - READ):
        raise ValueError(
            f"`collate` does not read {', '.join(unread)}: leave it out (known states then count as not known), or "
            "serve the model with PyTorch."
        )
    timed = "timestamps" in rows[0]
    posts = max(len(row["input_ids"]) for row in rows)
    tokens = max(len(ids) for row in rows for ids in row["input_ids"])
    streams = max(len(row["input_ids"]) - row.get("num_context", 0) for row in rows)
    batch = {
        "input_ids": np.full((len(rows), posts, tokens), pad_token_id, dtype=np.int64),
        "attention_mask": np.zeros((len(rows), posts, tokens), dtype=np.int64),
        "token_type_ids": np.zeros((len(rows), posts, tokens), dtype=np.int64),
        "stream_index": np.full((len(rows), streams, window), -1, dtype=np.int64),
        "timeline_position": np.zeros((len(rows), streams, 2), dtype=np.float32),
    }
    if timed:
        batch["elapsed"] = np.zeros((len(rows), streams, window), dtype=np.float32)
    for number, row in enumerate(rows):
        for post, ids in enumerate(row["input_ids"]):
            batch["input_ids"][number, post, : len(ids)] = ids
            batch["attention_mask"][number, post, : len(ids)] = 1
        targets = np.arange(row.get("num_context", 0), len(row["input_ids"]))
        index = np.maximum(targets[:, None] + np.arange(1 - window, 1), -1)
        batch["stream_index"][number, : len(targets)] = index
        batch["timeline_position"][number, : len(targets), 0] = targets + row.get("num_before", 0)
        if timed:
            # Differences are taken in 64 bits, because seconds since 1970 need more than 32.
            times = np.asarray(row["timestamps"], dtype=np.float64)
            elapsed = np.where(index < 0, 0, times[index[:, -1:]] - times[index])
            batch["elapsed"][number, : len(targets)] = elapsed
            batch["timeline_position"][number, : len(targets), 1] = times[targets] - row.get("start_time", times[0])
    return batch
