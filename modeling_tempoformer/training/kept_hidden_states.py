"""Keeps what frozen lower layers of an encoder compute of each post, so that a training does not compute it again."""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
from datasets import Dataset
from transformers import PreTrainedTokenizerBase
from transformers.models.deberta_v2.modeling_deberta_v2 import DebertaV2Layer
from transformers.models.mpnet.modeling_mpnet import MPNetLayer

from ..common.batches import batches_by_length
from ..common.files import written_whole
from ..common.hashes import hash_inputs
from ..modeling_streams_tempoformer import StreamPreTrainedModel
from ..modeling_tempoformer import TempoFormerForStreamClassification
from ..modeling_tempoformer_encoders import get_encoder_adapter
from ..packing_tempoformer import PackedPosts, arrangement
from .frozen_encoder import BATCH_SIZE


logger = logging.getLogger(__name__)

MOST_BYTES = 8 * 2**30
Tokens = tuple[int, ...]


@contextmanager
def keep_lower_states(
    model: StreamPreTrainedModel, count: int, rows: Iterable[Dataset], tokenizer: PreTrainedTokenizerBase
) -> Iterator[None]:
    """
    Computes once what the encoder's embeddings and lowest layers, which [`freeze_layers`] froze, make of each post of
    `rows`, and lets them answer so while the context lasts. The hidden states are kept in 16 bits on disk, in the
    cache of Datasets, where other seeds and folds with the same posts find them. More than 8 GiB are not kept, which
    the log says.

    Args:
        model (`StreamPreTrainedModel`): A model of either kind.
        count (`int`): Number of frozen layers; those that read streams are not among the kept ones.
        rows (`Iterable[Dataset]`): Rows of [`to_rows`]. Other posts must not be read within the context.
        tokenizer (`PreTrainedTokenizerBase`): The tokenizer, which pads the posts.
    """
    encoder, adapter = model.base_model.encoder, get_encoder_adapter(model.config.encoder_config)
    if isinstance(model, TempoFormerForStreamClassification):
        count = min(count, len(adapter.layers(encoder)) - model.config.num_stream_layers)
    posts = sorted({tuple(post) for split in rows for row in split for post in row["input_ids"]})
    size = 2 * model.config.encoder_config.hidden_size * sum(map(len, posts))
    # The convolution of large DeBERTa models stands between the layers.
    has_more = any(name == "encoder.conv" for name, _ in encoder.named_modules())
    is_packed = arrangement(encoder) is PackedPosts
    if count < 1 or size > MOST_BYTES or has_more or is_packed:
        logger.warning(f"The hidden states of frozen layers ({size / 2**30:.1f} GiB) are computed anew in each step.")
        yield
        return
    states = compute_or_load(model, count, posts, tokenizer)
    ends = np.cumsum([len(post) for post in posts])
    places = {post: slice(end - len(post), end) for post, end in zip(posts, ends, strict=True)}
    parts = [encoder.embeddings, *adapter.layers(encoder)[:count]]
    # ELECTRA's
    parts += [part for part in [getattr(encoder, "embeddings_project", None)] if part is not None]
    dtype, pad = next(encoder.parameters()).dtype, tokenizer.pad_token_id
    encoder.embeddings.forward = partial(look_up_states, states, places, pad, dtype)
    for part in parts[1:]:
        part.forward = pass_on_pair if isinstance(part, (DebertaV2Layer, MPNetLayer)) else pass_on
    try:
        yield
    finally:
        for part in parts:
            del part.forward


def look_up_states(
    states: np.ndarray,
    places: dict[Tokens, slice],
    pad: int,
    dtype: torch.dtype,
    input_ids: torch.Tensor,
    *args: Any,
    **kwargs: Any,
) -> torch.Tensor:
    """Returns the kept states of posts (posts, tokens, hidden), 0 at padding, in the place of embeddings."""
    found = torch.zeros(*input_ids.shape, states.shape[-1], dtype=dtype)
    lengths = ((input_ids != pad) * torch.arange(1, input_ids.shape[1] + 1, device=input_ids.device)).amax(-1)
    for number, (ids, length) in enumerate(zip(input_ids.tolist(), lengths.tolist(), strict=True)):
        if length:
            found[number, :length] = torch.from_numpy(states[places[tuple(ids[:length])]]).to(dtype)
    return found.to(input_ids.device)


def pass_on(hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Takes the place of a layer whose output is kept."""
    return hidden_states


def pass_on_pair(hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, None]:
    """Takes the place of a layer that also returns its attention."""
    return hidden_states, None


def compute_or_load(
    model: StreamPreTrainedModel, count: int, posts: list[Tokens], tokenizer: PreTrainedTokenizerBase
) -> np.ndarray:
    """Returns the hidden states of all tokens (tokens, hidden) in float16, post by post, as a file on disk."""
    encoder = model.base_model.encoder
    path = datasets.config.HF_DATASETS_CACHE / "lower_states" / f"{hash_inputs(encoder, [count, posts])}.npy"
    if not path.exists():
        with written_whole(path) as partial_path:
            write_states(partial_path, model, count, posts, tokenizer)
    states = np.load(path, mmap_mode="r+", allow_pickle=False)
    logger.info(f"The hidden states of {count} frozen layers, {states.nbytes / 2**30:.2f} GiB, are kept in {path}.")
    return states


@torch.no_grad()
def write_states(
    path: Path, model: StreamPreTrainedModel, count: int, posts: list[Tokens], tokenizer: PreTrainedTokenizerBase
):
    """Writes the array of [`compute_or_load`]."""
    encoder, adapter = model.base_model.encoder.eval(), get_encoder_adapter(model.config.encoder_config)
    ends = np.cumsum([len(post) for post in posts])
    shape = (int(ends[-1]), model.config.encoder_config.hidden_size)
    states = np.lib.format.open_memmap(path, mode="w+", dtype=np.float16, shape=shape)
    texts = [{"input_ids": list(post)} for post in posts]
    for chosen, batch in batches_by_length(texts, tokenizer, BATCH_SIZE, model.device, "Reading lower layers"):
        hidden = adapter.embed(encoder, input_ids=batch["input_ids"])
        inputs = adapter.layer_inputs(encoder, hidden, batch["attention_mask"].bool())
        for layer in adapter.layers(encoder)[:count]:
            hidden = adapter.run_layer(layer, hidden, inputs)
        for post, vectors in zip(chosen, hidden.cpu().numpy(), strict=True):
            states[ends[post] - len(posts[post]) : ends[post]] = vectors[: len(posts[post])]
    states.flush()
