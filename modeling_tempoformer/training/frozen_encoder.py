"""Training over a frozen encoder: each post is read once, and its vector is kept, also in a cache on disk."""

import hashlib
import json
from functools import partial
from typing import Any

import datasets
import numpy as np
import torch
from datasets import Dataset
from huggingface_hub.utils import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from ..data.files import written_whole
from ..modeling_post_tempoformer import PostTempoFormerForStreamClassification
from ..modeling_streams_tempoformer import StreamPreTrainedModel


logger = logging.get_logger(__name__)

BATCH_SIZE = 64  # posts


def freeze_encoder(model: StreamPreTrainedModel):
    """
    Keeps the encoder's weights as they are.

    Args:
        model (`PostTempoFormerForStreamClassification`): The model. Raises a `ValueError` for the paper's, whose
            stream layers are the encoder's.
    """
    if not isinstance(model, PostTempoFormerForStreamClassification):
        raise ValueError("--freeze_encoder needs a `post_tempoformer`: in a `tempoformer` the encoder's layers learn.")
    model.base_model.encoder.requires_grad_(False)


def embed_rows(
    rows: dict[str, Dataset], model: PostTempoFormerForStreamClassification, tokenizer: PreTrainedTokenizerBase
) -> dict[str, Dataset]:
    """
    Puts the vectors of posts in the place of their tokens. Equal posts are read once, and all vectors are kept in the
    cache on disk, so that another run on the same posts reads them there.

    Args:
        rows (`dict[str, Dataset]`): Rows of each part, as [`to_rows`] returns them.
        model (`PostTempoFormerForStreamClassification`): Its encoder must not change any more. It is put in
            evaluation mode.
        tokenizer (`PreTrainedTokenizerBase`): Pads the posts.

    Returns:
        For each part rows with `post_embeds` (posts, hidden) in float32 as [`StreamCollator`] takes them.
    """
    places: dict[tuple, int] = {}
    indexed = {}
    for part, part_rows in rows.items():
        names = [name for name in tokenizer.model_input_names if name in part_rows.column_names]
        index = []
        for row in part_rows:
            posts = zip(*([(name, tuple(tokens)) for tokens in row[name]] for name in names), strict=True)
            index.append([places.setdefault(post, len(places)) for post in posts])
        indexed[part] = part_rows.remove_columns(names).add_column("post_index", index)
    # Sorted, so that every split of the same posts finds them in the cache.
    known = sorted(places)
    posts = [{name: list(tokens) for name, tokens in post} for post in known]
    order = {post: place for place, post in enumerate(known)}
    vectors = torch.from_numpy(embed(posts, model, tokenizer))[[order[post] for post in places]]
    return {part: part_rows.with_transform(partial(look_up, vectors)) for part, part_rows in indexed.items()}


@torch.no_grad()
def embed(
    posts: list[dict[str, list[int]]],
    model: PostTempoFormerForStreamClassification,
    tokenizer: PreTrainedTokenizerBase,
) -> np.ndarray:
    """The vectors of posts (posts, hidden) in float32, from the cache of `datasets` or computed and kept there."""
    folder = datasets.config.HF_DATASETS_CACHE / "post_embeddings"
    path = folder / f"{hash_inputs(model.base_model.encoder, [model.config.post_pooling, posts])}.npy"
    if path.exists():
        logger.info(f"Read the vectors of posts from {path}.")
        return np.load(path, allow_pickle=False)
    model.eval()
    vectors = np.zeros((len(posts), model.config.encoder_config.hidden_size), dtype=np.float32)
    # Posts of similar lengths share a batch, for little padding.
    order = sorted(range(len(posts)), key=lambda post: len(posts[post]["input_ids"]))
    for begin in tqdm(range(0, len(order), BATCH_SIZE), desc="Reading posts", leave=False, delay=2):
        chosen = order[begin : begin + BATCH_SIZE]
        batch = tokenizer.pad([posts[post] for post in chosen], padding_side="right", return_tensors="pt")
        vectors[chosen] = model.base_model.embed_posts(**batch.to(model.device)).float().cpu().numpy()
    with written_whole(path) as partial_path:
        np.save(partial_path, vectors, allow_pickle=False)
    return vectors


def hash_inputs(encoder: PreTrainedModel, posts: Any) -> str:
    """A hash of all that decides the vectors: the encoder's configuration and weights, and the posts."""
    digest = hashlib.sha256(json.dumps([encoder.config.to_json_string(use_diff=False), posts]).encode())
    for name, weights in encoder.state_dict().items():
        digest.update(name.encode())
        digest.update(weights.contiguous().cpu().numpy())
    return digest.hexdigest()


def vectors_of(rows: Dataset, post_ids: list[str]) -> np.ndarray:
    """The vectors (posts, hidden) of posts by id, from rows of [`embed_rows`]; 0 for one that no row classifies."""
    known = {
        post_id: vector
        for row in rows
        for post_id, vector in zip(row["post_ids"], row["post_embeds"].numpy()[row["num_context"] :], strict=True)
    }
    absent = np.zeros_like(next(iter(known.values())))
    return np.stack([known.get(post_id, absent) for post_id in post_ids])


def look_up(vectors: torch.Tensor, rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Rows with the vectors of their posts."""
    return {**rows, "post_embeds": [vectors[index] for index in rows["post_index"]]}
