"""
Attention of the library's backends to the tokens of many posts that stand one after the other: each token attends to
its own post. All else in a layer sees one sequence of tokens.
"""

from typing import Any

import torch
from torch import nn
from transformers import AttentionInterface, PreTrainedConfig
from transformers.masking_utils import create_bidirectional_mask, create_bidirectional_sliding_window_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils.generic import is_flash_attention_requested

from .modeling_post_tempoformer import MASKED
from .packing_tempoformer import PackedPosts


# The backends that take what is added to scores as their mask.
OWN_MASKS = ("eager", "sdpa")
# The name of the attention of posts among the library's backends.
WITHIN_POSTS = "tempoformer_within_posts"


def eager_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Scaled dot-product attention that also returns its weights."""
    scores = query @ key.transpose(-1, -2) * scaling
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = scores.softmax(-1, dtype=torch.float32).to(query.dtype)
    weights = nn.functional.dropout(weights, p=dropout, training=module.training)
    return (weights @ value).transpose(1, 2), weights


def to_bias(mask: torch.BoolTensor, dtype: torch.dtype) -> torch.Tensor:
    """What attention adds to scores for a mask."""
    return (~mask).to(dtype) * MASKED


def make_mask(config: PreTrainedConfig, keys: torch.BoolTensor, dtype: torch.dtype) -> Any:
    """
    The mask of keys (batch, keys) in the form of the backend that `config` names. The library makes it, but for eager
    and SDPA attention, where it would wait for the device to see whether there is padding.
    """
    if config._attn_implementation in OWN_MASKS:
        return to_bias(keys, dtype)[:, None, None]
    return library_mask(config, keys, dtype)


def library_mask(config: PreTrainedConfig, keys: torch.BoolTensor, dtype: torch.dtype, windowed: bool = False) -> Any:
    """The library's mask of keys (batch, keys) for a backend; `windowed` for the window that `config` has."""
    make = create_bidirectional_sliding_window_mask if windowed else create_bidirectional_mask
    # The library reads only the shape, dtype and device of these states.
    return make(config, keys.new_empty(*keys.shape, 1, dtype=dtype), keys)


def make_group_masks(
    config: PreTrainedConfig, posts: PackedPosts, dtype: torch.dtype, window: int | None = None
) -> list[Any]:
    """The mask of each group of posts, in which a token sees its post, or `window` tokens of it on each side."""
    if config._attn_implementation not in OWN_MASKS:
        return [library_mask(config, keys, dtype, window is not None) for keys in posts.masks]
    masks = [keys[:, None, None] for keys in posts.split(to_bias(posts.real, dtype))]
    if window is None:
        # Copies, as CUDA's kernels want memory that begins at a multiple of 16 bytes.
        return [mask.clone() for mask in masks]
    widths = [width for _, width in posts.groups]
    places = torch.arange(max(widths), device=posts.real.device)
    far = ((places.unsqueeze(-1) - places).abs() > window).to(dtype) * MASKED
    return [mask + far[:width, :width] for mask, width in zip(masks, widths, strict=True)]


class AttentionConfig:
    """
    An encoder's configuration as its attention modules see it: they attend within posts. Which backend computes that
    is the encoder's choice.
    """

    def __init__(self, config: PreTrainedConfig):
        self.config = config

    def __getattr__(self, name: str) -> Any:
        if name == "config":  # A copy that has nothing yet.
            raise AttributeError(name)
        return getattr(self.config, name)

    @property
    def _attn_implementation(self) -> str:
        # The library's flash attention knows packed sequences.
        return self.config._attn_implementation if is_flash_attention_requested(self.config) else WITHIN_POSTS


class PostAttention:
    """
    What attention modules get in the place of a mask: attention in which each token sees its own post.

    Args:
        config (`PreTrainedConfig`): The encoder's configuration, which names the backend.
        posts ([`PackedPosts`]): The posts.
        dtype (`torch.dtype`): The dtype of hidden states.
        window (`int`, *optional*): How far a token sees; to the ends of its post if omitted.
    """

    def __init__(self, config: PreTrainedConfig, posts: PackedPosts, dtype: torch.dtype, window: int | None = None):
        self.backend, self.posts = config._attn_implementation, posts
        self.masks = make_group_masks(config, posts, dtype, window)

    def attend(
        self, module: nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **kwargs
    ) -> tuple[torch.Tensor, list[torch.Tensor | None]]:
        """
        The context (1, tokens, heads, d) of queries, keys and values (1, heads, tokens, d), and the attention weights
        of each group of posts, if the backend returns them. `kwargs` are those of the library's attention functions.
        """
        attention = ALL_ATTENTION_FUNCTIONS.get_interface(self.backend, eager_attention_forward)
        groups = (self.posts.to_groups(states.transpose(1, 2)) for states in (query, key, value))
        outputs = [
            attention(module, *(states.transpose(1, 2) for states in group), move(mask, query.device), **kwargs)
            for *group, mask in zip(*groups, self.masks, strict=True)
        ]
        return self.posts.from_groups([context for context, _ in outputs]), [weights for _, weights in outputs]


def attend_within_posts(
    module: nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: Any, **kwargs
) -> tuple[torch.Tensor, Any]:
    """The attention of the library's interface under the name `WITHIN_POSTS`."""
    # Not by its class, which is another one for code from the Hub.
    if hasattr(attention_mask, "attend"):
        return attention_mask.attend(module, query, key, value, **kwargs)
    # An encoder that is called by itself.
    backend = module.config.config._attn_implementation
    attention = ALL_ATTENTION_FUNCTIONS.get_interface(backend, eager_attention_forward)
    return attention(module, query, key, value, attention_mask, **kwargs)


AttentionInterface.register(WITHIN_POSTS, attend_within_posts)


def attention_inputs(
    config: PreTrainedConfig, posts: PackedPosts, dtype: torch.dtype, window: int | None = None
) -> dict[str, Any]:
    """The arguments of a layer that make its attention see posts, as [`PostAttention`] takes them."""
    if not is_flash_attention_requested(config):
        return {"attention_mask": PostAttention(config, posts, dtype, window)}
    if posts.counts is None:
        raise ValueError("Flash attention cannot be compiled here: load the model with `attn_implementation='sdpa'`.")
    bounds = posts.bounds.to(torch.int32)
    lengths = {"cu_seq_lens_q": bounds, "cu_seq_lens_k": bounds}
    return {"attention_mask": None, **lengths, "max_length_q": posts.longest, "max_length_k": posts.longest}


def move(mask: Any, device: torch.device) -> Any:
    """A backend's mask, if there is one, on a device."""
    return mask if mask is None else mask.to(device)
