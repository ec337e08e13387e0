"""
The batches of `StreamCollator` in NumPy, to serve a model as ONNX without PyTorch: read it, copy it.

    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file("my_model/tokenizer.json")
    tokenizer.no_padding()
    tokenizer.enable_truncation(128)
    posts = [encoding.ids for encoding in tokenizer.encode_batch(["so happy today", "so tired"])]
    batch = collate([{"input_ids": posts, "timestamps": [1714554000, 1714687800]}], window=20)
    session = onnxruntime.InferenceSession("model.onnx")
    inputs = {given.name: batch[given.name] for given in session.get_inputs()}
    (logits,) = session.run(["logits"], inputs)  # (timelines, posts, classes)

Nothing is checked here: times are seconds in the order of the posts, and each post has at least a token. Calibration
is in the model's config.json: divide the logits by `temperature`, and take the class with the largest probability /
threshold.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np


def collate(rows: Sequence[dict[str, Any]], window: int, pad_token_id: int = 0) -> dict[str, np.ndarray]:
    """
    The inputs of a model for timelines, each of whose posts is classified; their shapes are those of `StreamCollator`.

    Args:
        rows: Each a dict of `input_ids`, a list of token ids for each post, and `timestamps`, its seconds; without
            these the model must have been trained without times. The first `num_context` posts (by default 0) are
            context only. Of a long timeline give the last posts, with `num_before`, how many are left out (by default
            0), and `start_time`, the seconds of its first.
        window, pad_token_id (`int`): As in config.json of the model and of its tokenizer.
    """
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
            # Differences first: seconds since 1970 are too large for 32 bits.
            times = np.asarray(row["timestamps"], dtype=np.float64)
            elapsed = np.where(index < 0, 0, times[index[:, -1:]] - times[index])
            batch["elapsed"][number, : len(targets)] = elapsed
            batch["timeline_position"][number, : len(targets), 1] = times[targets] - row.get("start_time", times[0])
    return batch
