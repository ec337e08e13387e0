"""The layers between the posts of a stream, for both forms of TempoFormer."""

import torch
from torch import nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .attention_tempoformer import eager_attention_forward, make_mask, to_bias
from .configuration_tempoformer import TempoFormerConfig
from .modeling_tempoformer_encoders import get_encoder_adapter


def rotate_pairs(states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotates the pairs (2i, 2i+1) of the last axis of `states`; `cos` and `sin` have the pair's value at both."""
    turned = torch.stack((-states[..., 1::2], states[..., 0::2]), dim=-1).flatten(-2)
    return torch.addcmul(states * cos, turned, sin)


class StreamPositionEmbedding(nn.Embedding):
    """Embeddings of stream positions. A separate class, so that `_init_weights` can give it its own scale."""


class StreamPosition(nn.Module):
    """
    Adds the embedding of a post's position in the stream to all its tokens, then LayerNorm and dropout. Before a
    pre-norm layer there is no LayerNorm, and dropout only on the embedding, as on everything that such layers add.
    """

    def __init__(self, config: TempoFormerConfig):
        super().__init__()
        adapter = get_encoder_adapter(config.encoder_config)
        is_pre_norm = adapter.is_pre_norm or config.stream_form == "post"
        self.embedding = StreamPositionEmbedding(config.window, config.stream_width)
        self.norm = None if is_pre_norm else nn.LayerNorm(config.stream_width)
        self.dropout = nn.Dropout(adapter.dropout(config.encoder_config))

    def forward(self, hidden_states: torch.Tensor, positions: torch.LongTensor) -> torch.Tensor:
        """`hidden_states` (..., hidden), `positions` of the same leading axes, or one that broadcasts to them."""
        position = self.embedding(positions)
        if self.norm is None:
            return hidden_states + self.dropout(position)
        return self.dropout(self.norm(hidden_states + position))


class ZeroLinear(nn.Linear):
    """A linear layer that starts at 0, so that adding its output changes nothing at first."""


class StreamAttention(nn.Module):
    """
    Multi-head attention across the vectors of a stream's posts (paper, section 4.2), [CLS] in the token form.
    Queries and keys are rotated by `tau * theta_i`, `theta_i = rope_theta^(-2(i-1)/d)`, so that scores depend on
    differences of `tau`.
    """

    def __init__(self, config: TempoFormerConfig):
        super().__init__()
        self.config = config
        self.num_heads = config.encoder_config.num_attention_heads
        hidden_size = config.stream_width
        self.head_dim = hidden_size // self.num_heads
        self.scaling = self.head_dim**-0.5
        self.is_causal = False
        bias = config.stream_attention == "full"
        self.q_proj = nn.Linear(hidden_size, hidden_size, bias=bias)
        self.k_proj = nn.Linear(hidden_size, hidden_size, bias=bias)
        self.v_proj = nn.Linear(hidden_size, hidden_size, bias=bias)
        self.o_proj = (ZeroLinear if config.stream_residual else nn.Linear)(hidden_size, hidden_size)
        self.dropout = nn.Dropout(get_encoder_adapter(config.encoder_config).dropout(config.encoder_config))

    def forward(
        self,
        posts: torch.Tensor,
        stream_mask: torch.BoolTensor,
        tau: torch.Tensor | None,
        output_attentions: bool = False,
        only_newest: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """
        `posts` (streams, window, hidden), `stream_mask` and `tau` (streams, window); `tau=None` does not rotate.
        Returns the context of all posts, or with `only_newest` of the newest alone, and their attention.
        """
        asking = slice(-1, None) if only_newest else slice(None)
        asked = posts[:, asking]
        query, key, value = (
            projection(states).unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)
            for projection, states in ((self.q_proj, asked), (self.k_proj, posts), (self.v_proj, posts))
        )
        if tau is not None:
            exponents = torch.arange(0, self.head_dim, 2, device=posts.device, dtype=torch.float32) / self.head_dim
            angles = (tau[:, None, :, None] * self.config.rope_theta**-exponents).repeat_interleave(2, dim=-1)
            cos, sin = angles.cos().to(query.dtype), angles.sin().to(query.dtype)
            query, key = rotate_pairs(query, cos[:, :, asking], sin[:, :, asking]), rotate_pairs(key, cos, sin)
        if output_attentions:
            # Only eager attention returns weights. Windows are short, so it is cheap.
            attention, mask = eager_attention_forward, to_bias(stream_mask, posts.dtype)[:, None, None]
        else:
            attention = ALL_ATTENTION_FUNCTIONS.get_interface(
                self.config._attn_implementation, eager_attention_forward
            )
            mask = make_mask(self.config, stream_mask, posts.dtype, num_queries=asked.shape[1])
        context, weights = attention(self, query, key, value, mask, scaling=self.scaling, dropout=0.0)
        return self.dropout(self.o_proj(context.flatten(-2))), weights


class StreamLayer(nn.Module):
    """
    What stream layers of both forms have: stream positions, and attention across the posts. In the token form the
    positions come before one of the encoder's own layers, and the attention after it.
    """

    def __init__(self, config: TempoFormerConfig, index: int):
        super().__init__()
        self.position = StreamPosition(config) if config.position_embeddings_per_layer[index] else None
        self.attention = StreamAttention(config)


class GateAndNorm(nn.Module):
    """Gate&Norm (paper, section 4.3): `LayerNorm((1 - g) c + g c')` with `g = sigmoid(W [c; c'] + b)`."""

    def __init__(self, config: TempoFormerConfig):
        super().__init__()
        hidden_size = config.stream_width
        self.gate = nn.Linear(2 * hidden_size, hidden_size)
        self.norm = nn.LayerNorm(hidden_size)

    def forward(self, cls: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        gate = self.gate(torch.cat((cls, context), dim=-1)).sigmoid()
        return self.norm((1 - gate) * cls + gate * context)


class PostReader(nn.Module):
    """
    The stream layers of the post form, from one vector for each post to what the head reads.

    A post's vector is normalised and, where the widths differ, projected. Each layer is pre-norm: it adds the position
    in the stream, then what attention finds in the stream's posts, then a feed-forward step. At the end `fusion` joins
    a post's own vector and its context, or, without it, the context is normalised.

    Args:
        config ([`TempoFormerConfig`]): With `stream_form="post"`.
    """

    def __init__(self, config: TempoFormerConfig):
        super().__init__()
        hidden_size = config.encoder_config.hidden_size
        self.reads_newest = config.head == "mlp"
        self.norm = nn.LayerNorm(hidden_size)
        same = config.stream_width == hidden_size
        self.projection = nn.Identity() if same else nn.Linear(hidden_size, config.stream_width)
        self.layers = nn.ModuleList(PostStreamLayer(config, index) for index in range(config.num_stream_layers))
        self.fusion = GateAndNorm(config) if config.fusion == "gate" else None
        self.final_norm = nn.LayerNorm(config.stream_width) if config.fusion == "none" else None

    def forward(
        self,
        vectors: torch.Tensor,
        stream_mask: torch.BoolTensor,
        tau: torch.Tensor | None,
        output_attentions: bool = False,
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """
        `vectors` (streams, window, hidden), `stream_mask` and `tau` (streams, window). Returns what the head reads,
        (streams, 1, width) for the newest post or (streams, window, width) for a recurrent head, and the attention of
        each layer. The last layer computes no more than that, unless `output_attentions` asks for all posts.
        """
        posts = context = self.projection(self.norm(vectors))
        attentions = []
        for index, layer in enumerate(self.layers):
            only_newest = self.reads_newest and index == len(self.layers) - 1 and not output_attentions
            context, weights = layer(context, stream_mask, tau, output_attentions, only_newest)
            attentions.append(weights)
        if self.reads_newest:
            posts, context = posts[:, -1:], context[:, -1:]
        return (self.final_norm(context) if self.fusion is None else self.fusion(posts, context)), attentions


class PostStreamLayer(StreamLayer):
    """A pre-norm layer over the vectors of a stream's posts, with temporal rotation and a feed-forward step."""

    def __init__(self, config: TempoFormerConfig, index: int):
        super().__init__(config, index)
        width = config.stream_width
        self.config = config
        self.attention_norm = nn.LayerNorm(width)
        self.mlp_norm = nn.LayerNorm(width)
        dropout = nn.Dropout(get_encoder_adapter(config.encoder_config).dropout(config.encoder_config))
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), dropout)

    def forward(
        self,
        posts: torch.Tensor,
        stream_mask: torch.BoolTensor,
        tau: torch.Tensor | None,
        output_attentions: bool,
        only_newest: bool,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """As [`StreamAttention.forward`]."""
        if self.position is not None:
            # The newest post always has the last position.
            first = self.config.window - posts.shape[1]
            posts = self.position(posts, torch.arange(first, self.config.window, device=posts.device))
        context, weights = self.attention(self.attention_norm(posts), stream_mask, tau, output_attentions, only_newest)
        if self.config.stream_residual:
            context = context + posts[:, -context.shape[1] :]
        return context + self.mlp(self.mlp_norm(context)), weights
