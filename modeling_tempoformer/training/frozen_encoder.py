"""Embeds posts by a frozen encoder. Each post is encoded once, and its vector is kept."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import datasets
import numpy as np
import torch
from datasets import Dataset
from transformers import BatchEncoding, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from ..common.batches import batches_by_length
from ..common.files import written_whole
from ..common.hashes import hash_inputs
from ..modeling_post_tempoformer import PostTempoFormerForStreamClassification
from ..modeling_streams_tempoformer import StreamPreTrainedModel
from ..modeling_tempoformer_encoders import get_encoder_adapter
from ..timeline_tempoformer import Timeline


logger = logging.get_logger(__name__)

BATCH_SIZE = 64  # posts


def freeze_encoder(model: StreamPreTrainedModel):
    """
    Freezes the encoder's weights. Raises a `ValueError` for the paper's model, whose stream layers are layers of the
    encoder.

    Args:
        model (`PostTempoFormerForStreamClassification`): The model.
    """
    if not isinstance(model, PostTempoFormerForStreamClassification):
        raise ValueError("--freeze_encoder needs a `post_tempoformer`: in a `tempoformer` the encoder's layers learn.")
    model.base_model.encoder.requires_grad_(False)


def freeze_layers(model: StreamPreTrainedModel, count: int):
    """
    Freezes the encoder's embeddings and its lowest layers, which then have no dropout either, and what all layers
    share, such as relative positions. The layers above learn.

    Args:
        model (`StreamPreTrainedModel`): A model of either kind, on an encoder that the paper's model reads.
        count (`int`): Number of layers. Raises a `ValueError` unless at least one is frozen and at least one learns.
    """
    encoder, adapter = model.base_model.encoder, get_encoder_adapter(model.config.encoder_config)
    layers = adapter.layers(encoder)
    if not 0 < count < len(layers):
        raise ValueError(
            f"--freeze_layers must lie between 1 and {len(layers) - 1}, as the encoder has {len(layers)} layers, got "
            f"{count}."
        )
    learning = {parameter for name in ("pooler", "final_norm") for parameter in parameters_of(encoder, name)}
    learning.update(layers[count:].parameters())
    for parameter in encoder.parameters():
        parameter.requires_grad_(parameter in learning)
    # DeBERTa's convolution is no part of the first layer, which it belongs to.
    beside = [module for name, module in encoder.named_modules() if name == "encoder.conv"]
    for module in (encoder.embeddings, *layers[:count], *beside):
        module.register_forward_pre_hook(stop_dropout)


def stop_dropout(module: torch.nn.Module, inputs: Any):
    """Puts a frozen part in evaluation mode, as the Trainer puts the whole model in training mode."""
    module.eval()


def parameters_of(encoder: PreTrainedModel, name: str) -> list[torch.nn.Parameter]:
    """Returns the parameters of a part of the encoder, none where it has no such part."""
    part = getattr(encoder, name, None)
    return [] if part is None else list(part.parameters())


def embed_rows(
    rows: dict[str, Dataset],
    model: PostTempoFormerForStreamClassification,
    tokenizer: PreTrainedTokenizerBase,
    keeps: bool = True,
) -> dict[str, Dataset]:
    """
    Replaces the tokens of posts by their vectors. Equal posts are encoded once.

    Args:
        rows (`dict[str, Dataset]`): Rows of each split, as [`to_rows`] returns them.
        model (`PostTempoFormerForStreamClassification`): The model, whose encoder must be frozen. It is put in
            evaluation mode.
        tokenizer (`PreTrainedTokenizerBase`): The tokenizer, which pads the posts.
        keeps (`bool`, *optional*, defaults to `True`): If True, all vectors are kept in the cache on disk, where
            another run on the same posts reads them.

    Returns:
        Rows of each split with `post_embeds` (posts, `vector_size`) in float32, as [`StreamCollator`] takes them.
    """
    numbers: dict[tuple, int] = {}
    indexed = {}
    for split, split_rows in rows.items():
        names = [name for name in tokenizer.model_input_names if name in split_rows.column_names]
        index = []
        for row in split_rows:
            posts = zip(*([(name, tuple(tokens)) for tokens in row[name]] for name in names), strict=True)
            index.append([numbers.setdefault(post, len(numbers)) for post in posts])
        indexed[split] = split_rows.remove_columns(names).add_column("post_index", index)
    # The posts are sorted, so that the same posts are found in the cache however they are split.
    sorted_posts = sorted(numbers)
    posts = [{name: list(tokens) for name, tokens in post} for post in sorted_posts]
    position = {post: number for number, post in enumerate(sorted_posts)}
    vectors = (embed_or_load if keeps else embed)(posts, model, tokenizer)
    if model.base_model.words is not None:
        # Read anew, as they differ between models with the same encoder.
        vectors = np.concatenate((vectors, read_words(posts, model, tokenizer)), axis=1)
    vectors = torch.from_numpy(vectors)
    vectors = vectors[[position[post] for post in numbers]]
    return {split: split_rows.with_transform(partial(look_up, vectors)) for split, split_rows in indexed.items()}


def embed_or_load(
    posts: list[dict[str, list[int]]],
    model: PostTempoFormerForStreamClassification,
    tokenizer: PreTrainedTokenizerBase,
) -> np.ndarray:
    """Returns the vectors of [`embed`], from the cache of `datasets` or computed and kept there."""
    folder = datasets.config.HF_DATASETS_CACHE / "post_embeddings"
    path = folder / f"{hash_inputs(model.base_model.encoder, [model.config.post_pooling, posts])}.npy"
    if path.exists():
        logger.info(f"Read the vectors of posts from {path}.")
        return np.load(path, allow_pickle=False)
    vectors = embed(posts, model, tokenizer)
    with written_whole(path) as partial_path:
        np.save(partial_path, vectors, allow_pickle=False)
    return vectors


def embed(
    posts: list[dict[str, list[int]]],
    model: PostTempoFormerForStreamClassification,
    tokenizer: PreTrainedTokenizerBase,
) -> np.ndarray:
    """Returns the encoder's vectors of posts (posts, hidden) in float32."""
    model.eval()
    width = model.config.encoder_config.hidden_size
    batches = batches_by_length(posts, tokenizer, BATCH_SIZE, model.device, "Reading posts")
    return read_batches(model.base_model.encode_posts, batches, len(posts), width)


def read_words(
    posts: list[dict[str, list[int]]],
    model: PostTempoFormerForStreamClassification,
    tokenizer: PreTrainedTokenizerBase,
) -> np.ndarray:
    """Returns in float32 what [`~experts_tempoformer.Words`] says of posts."""
    width = model.config.vector_size - model.config.encoder_config.hidden_size
    batches = batches_by_length(posts, tokenizer, BATCH_SIZE, model.device, "Reading words")
    return read_batches(model.base_model.words, batches, len(posts), width)


@torch.no_grad()
def read_batches(
    read: Callable[..., torch.Tensor], batches: Iterable[tuple[list[int], BatchEncoding]], num_posts: int, width: int
) -> np.ndarray:
    """Returns in float32 the numbers (posts, width) that `read` returns of the posts of each batch."""
    values = np.zeros((num_posts, width), dtype=np.float32)
    for chosen, batch in batches:
        values[chosen] = read(**batch).float().cpu().numpy()
    return values


def post_vectors(rows: Dataset, timelines: Sequence[Timeline]) -> np.ndarray:
    """
    Returns the vectors (posts, `vector_size`) of all posts of timelines, in their order, from rows of [`embed_rows`];
    0 for a post that is in no stream.
    """
    first_posts = np.cumsum([0, *map(len, timelines)])
    vectors = np.zeros((first_posts[-1], rows[0]["post_embeds"].shape[-1]), dtype=np.float32)
    for row in rows:
        older = row.get("num_older", 0)
        posts = row["post_embeds"][older:].numpy()
        first = first_posts[row["timeline"]] + row["num_before"] + older
        vectors[first : first + len(posts)] = posts
    return vectors


def look_up(vectors: torch.Tensor, rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Returns the rows with the vectors of their posts."""
    return {**rows, "post_embeds": [vectors[index] for index in rows["post_index"]]}
