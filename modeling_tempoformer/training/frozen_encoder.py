"""Training over a frozen encoder: each post is read once, and its vector is kept."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from datasets import Dataset
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from ..modeling_tempoformer import TempoFormerForStreamClassification


BATCH_SIZE = 64  # posts


def freeze_encoder(model: TempoFormerForStreamClassification):
    """Keeps the encoder's weights as they are. Raises a `ValueError` in the token form, whose top layers learn."""
    if model.config.stream_form != "post":
        raise ValueError("--freeze_encoder needs `stream_form: post`: in the token form the encoder's layers learn.")
    model.base_model.encoder.requires_grad_(False)


def embed_rows(
    rows: dict[str, Dataset], model: TempoFormerForStreamClassification, tokenizer: PreTrainedTokenizerBase
) -> dict[str, Dataset]:
    """
    Puts the vectors of posts in the place of their tokens. Equal posts are read once.

    Args:
        rows (`dict[str, Dataset]`): Rows of each part, as [`to_rows`] returns them.
        model (`TempoFormerForStreamClassification`): In the post form; its encoder must not change any more.
        tokenizer (`PreTrainedTokenizerBase`): Pads the posts.

    Returns:
        For each part rows with `post_embeds` (posts, hidden) in float32 as [`StreamCollator`] takes them. The vectors
        are kept in memory, once for each different post.
    """
    places: dict[Any, int] = {}
    indexed = {}
    for part, of_part in rows.items():
        names = [name for name in tokenizer.model_input_names if name in of_part.column_names]

        def index(row: dict[str, Any], names: Sequence[str] = names) -> dict[str, list[int]]:
            posts = zip(*(map(tuple, row[name]) for name in names), strict=True)
            return {"post_index": [places.setdefault((tuple(names), post), len(places)) for post in posts]}

        indexed[part] = of_part.map(
            index, remove_columns=names, load_from_cache_file=False, desc="Finding equal posts"
        )
    posts = [dict(zip(names, map(list, tokens), strict=True)) for names, tokens in places]
    vectors = embed(posts, model, tokenizer)
    return {part: of_part.with_transform(partial(look_up, vectors)) for part, of_part in indexed.items()}


@torch.no_grad()
def embed(
    posts: list[dict[str, Sequence[int]]],
    model: TempoFormerForStreamClassification,
    tokenizer: PreTrainedTokenizerBase,
) -> torch.Tensor:
    """The vectors of posts (posts, hidden) on the CPU, computed on a GPU if there is one."""
    home, device = model.device, torch.accelerator.current_accelerator() or torch.device("cpu")
    was_training = model.training
    model.to(device).eval()
    vectors = torch.zeros(len(posts), model.config.encoder_config.hidden_size)
    # Posts of similar lengths share a batch, for little padding.
    order = sorted(range(len(posts)), key=lambda post: len(posts[post]["input_ids"]))
    for begin in logging.tqdm(range(0, len(order), BATCH_SIZE), desc="Embedding posts"):
        chosen = order[begin : begin + BATCH_SIZE]
        batch = tokenizer.pad([posts[post] for post in chosen], padding_side="right", return_tensors="pt").to(device)
        vectors[chosen] = model.base_model.embed_posts(**batch).float().cpu()
    model.to(home).train(was_training)
    return vectors


def look_up(vectors: torch.Tensor, rows: dict[str, list]) -> dict[str, list]:
    """Rows with the vectors of their posts."""
    posts = rows.pop("post_index")
    return {**rows, "post_embeds": [vectors[index] for index in posts]}
