"""
Computes TempoFormer plainly around the forward pass of the encoder's own family: every stream by itself, every post of
it anew, and attention across posts one head at a time.
"""

import math
from collections.abc import Callable
from contextlib import ExitStack
from functools import reduce
from operator import attrgetter

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModel, PreTrainedModel

from modeling_tempoformer.modeling_post_tempoformer import MemberLinear


# The attributes of a family's layers, and of the norm after the last layer.
FAMILY_PARTS = {"distilbert": ("transformer.layer", None), "modernbert": ("layers", "final_norm")}


def rotate(vector: torch.Tensor, tau: float, theta: float) -> torch.Tensor:
    """Returns a vector whose pairs of values, as complex numbers, are rotated by `tau` times their frequency."""
    turned = []
    for i in range(len(vector) // 2):
        angle = tau * theta ** (-2 * i / len(vector))
        x, y = vector[2 * i], vector[2 * i + 1]
        turned += [x * math.cos(angle) - y * math.sin(angle), x * math.sin(angle) + y * math.cos(angle)]
    return torch.stack(turned)


def stream_attention(
    attention, cls: list[torch.Tensor], taus: list[float] | None, of: Callable = lambda layer: layer
) -> list[torch.Tensor]:
    """Returns each post's attention to all posts of its stream. `of` chooses a member of a layer."""
    size, theta = attention.head_dim, attention.config.rope_theta
    heads = []
    for head in range(attention.num_heads):
        part = slice(head * size, (head + 1) * size)
        queries, keys, values = (
            [of(projection)(vector)[part] for vector in cls]
            for projection in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        if taus is not None:
            queries = [rotate(vector, tau, theta) for vector, tau in zip(queries, taus, strict=True)]
            keys = [rotate(vector, tau, theta) for vector, tau in zip(keys, taus, strict=True)]
        head_outputs = []
        for query in queries:
            weights = torch.stack([query @ key / math.sqrt(size) for key in keys]).softmax(0)
            head_outputs.append(sum(weight * value for weight, value in zip(weights, values, strict=True)))
        heads.append(head_outputs)
    return [of(attention.o_proj)(torch.cat(outputs)) for outputs in zip(*heads, strict=True)]


def log_times(config, distances: list[int], elapsed: list[float] | None) -> list[float] | None:
    """Returns the values by which the posts of a stream are rotated."""
    if config.stream_attention == "full":
        return None
    if config.stream_attention == "temporal_rotary" and elapsed is not None:
        return [math.log(max(seconds, 1.0)) for seconds in elapsed]
    return [float(distance) for distance in distances]


def post_model_logits(
    model, tokens: list[torch.Tensor], distances: list[int], elapsed: list[float] | None
) -> torch.Tensor:
    """Returns the `stream_logits` of the post model from the encoder's output (tokens, hidden) for each post."""
    config = model.config
    taus = log_times(config, distances, elapsed)
    vectors = [states[0] if config.post_pooling == "cls" else sum(states) / len(states) for states in tokens]
    logits = [member_logits(model, member, vectors, distances, taus) for member in range(config.num_members)]
    return sum(logits) / len(logits)


def member_logits(
    model, member: int, vectors: list[torch.Tensor], distances: list[int], taus: list[float] | None
) -> torch.Tensor:
    """Returns the logits of one member for a stream, from the vectors of its posts."""
    config, reader = model.config, model.tempoformer.stream_layers

    def of(layer) -> Callable[[torch.Tensor], torch.Tensor]:
        """Returns a function that applies a layer of this member alone to one vector."""
        if isinstance(layer, nn.Sequential):
            return lambda vector: reduce(lambda value, part: of(part)(value), layer, vector)
        if type(layer).__name__ == "MemberLayerNorm":
            weight, bias = layer.weight[member], layer.bias[member]
            return lambda vector: nn.functional.layer_norm(vector, vector.shape, weight, bias)
        if isinstance(layer, MemberLinear):
            weight, bias = layer.weight[member].T, None if layer.bias is None else layer.bias[member, 0]
            return lambda vector: nn.functional.linear(vector, weight, bias)
        return layer

    projected = states = [of(reader.projection)(of(reader.norm)(vector)) for vector in vectors]
    for layer in reader.layers:
        width = config.stream_hidden_size
        columns = slice(member * width, (member + 1) * width)
        positions = [layer.position(torch.tensor(config.window - 1 - distance))[columns] for distance in distances]
        states = [state + position for state, position in zip(states, positions, strict=True)]
        contexts = stream_attention(layer.attention, [of(layer.attention_norm)(state) for state in states], taus, of)
        states = [state + context for state, context in zip(states, contexts, strict=True)]
        states = [state + of(layer.mlp)(of(layer.mlp_norm)(state)) for state in states]
    step, cosines = torch.zeros_like(projected[-1]), [torch.tensor(0.0)] * 2
    # The previous post may be missing: in a window of one, or if it is absent.
    if len(vectors) > 1 and distances[-2] == 1:
        step = projected[-1] - projected[-2]
        cosines[0] = torch.cosine_similarity(vectors[-1], vectors[-2], dim=0)
    if len(vectors) > 1:
        units = [vector / vector.norm() for vector in vectors[:-1]]
        cosines[1] = torch.cosine_similarity(vectors[-1], sum(units), dim=0)
    features = torch.cat((of(reader.final_norm)(states[-1]), step, step.abs(), torch.stack(cosines)))
    return of(model.classifier)(features)


def fuse(fusion, vectors: list[torch.Tensor], contexts: list[torch.Tensor]) -> list[torch.Tensor]:
    """Returns Gate&Norm of each post's own vector and its context, or the context if there is no gate."""
    if fusion is None:
        return contexts
    joined = []
    for c, context in zip(vectors, contexts, strict=True):
        gate = fusion.gate(torch.cat((c, context))).sigmoid()
        joined.append(fusion.norm((1 - gate) * c + gate * context))
    return joined


def classify(model, pooled: list[torch.Tensor] | None, vectors: list[torch.Tensor]) -> torch.Tensor:
    """
    Returns the logits of the newest post, from the posts' pooled vectors below the stream layers, if the head reads
    them, and from their vectors after the stream layers (without stream layers, their pooled vectors).
    """
    config = model.config
    head = model.classifier
    if config.head == "lstm":
        if config.num_stream_layers:
            vectors = [head.dense(vector).tanh() for vector in vectors]
        order = vectors[::-1] if config.recurrent_order == "reverse" else vectors
        features = head.lstm(torch.stack(order).unsqueeze(0))[0][0, -1]
    else:
        features = vectors[-1] if pooled is None else torch.cat((pooled[-1], vectors[-1]))
    return head.mlp(features)


def plain_encoder(model) -> PreTrainedModel:
    """Returns the family's own model with the weights of a TempoFormer's encoder, which must be all its weights."""
    config = model.config.encoder_config
    plain = AutoModel.from_config(config, attn_implementation=config._attn_implementation).eval()
    missing, unexpected = plain.load_state_dict(model.tempoformer.encoder.state_dict(), strict=False)
    assert not unexpected and all(name.startswith("pooler.") for name in missing)
    return plain


def stream_logits(
    model, posts: list[dict[str, torch.Tensor]], distances: list[int], elapsed: list[float] | None
) -> torch.Tensor:
    """
    Returns the logits of one stream, given its posts, oldest first and without padding, and their distances from the
    newest. The encoder of any family makes one forward pass over the posts. Hooks on its upper layers add stream
    positions, and replace [CLS] by the context.
    """
    config, base = model.config, model.tempoformer
    encoder = base.encoder
    # The number of stream layers in the encoder.
    m = 0 if config.model_type != "tempoformer" else config.num_stream_layers
    layers_at, norm_at = FAMILY_PARTS.get(config.encoder_config.model_type, ("encoder.layer", None))
    layers = attrgetter(layers_at)(encoder)
    norm = torch.nn.Identity() if norm_at is None else attrgetter(norm_at)(encoder)
    pooler = getattr(encoder, "pooler", getattr(base, "pooler", None))
    taus = log_times(config, distances, elapsed)
    below, vectors, contexts = [], [], []

    def add_positions(index: int, states: torch.Tensor) -> torch.Tensor:
        if index == 0:
            below.extend(norm(states[:, 0]))
        position = base.stream_layers[index].position
        if position is None:
            return states
        added = states + position.embedding(torch.tensor(config.window - 1) - torch.tensor(distances))[:, None]
        # Pre-norm families have the norm after the last layer, and none after the positions.
        return added if norm_at else position.norm(added)

    def attend(index: int, states: torch.Tensor) -> torch.Tensor:
        vectors[:] = norm(states[:, 0])
        attended = torch.stack(stream_attention(base.stream_layers[index].attention, vectors, taus))
        contexts[:] = attended + torch.stack(vectors) if config.stream_residual else attended
        new = attended + states[:, 0] if config.stream_residual else attended
        return torch.cat((new[:, None], states[:, 1:]), dim=1)

    def after(index: int) -> Callable:
        def hook(module, args, output):
            if isinstance(output, tuple):
                return (attend(index, output[0]), *output[1:])
            return attend(index, output)

        return hook

    def before(index: int) -> Callable:
        return lambda module, args: (add_positions(index, args[0]), *args[1:])

    mask = pad_sequence([torch.ones_like(post["input_ids"][0]) for post in posts], batch_first=True)
    padding = {"input_ids": config.encoder_config.pad_token_id, "time_ids": 0}
    inputs = {
        name: pad_sequence([post[name][0] for post in posts], batch_first=True, padding_value=padding[name])
        for name in posts[0]
    }
    with ExitStack() as hooks:
        for index, layer in enumerate(layers[len(layers) - m :]):
            hooks.callback(layer.register_forward_pre_hook(before(index)).remove)
            hooks.callback(layer.register_forward_hook(after(index)).remove)
        output = encoder(**inputs, attention_mask=mask)
    if config.model_type != "tempoformer":
        tokens = [states[real.bool()] for states, real in zip(output.last_hidden_state, mask, strict=True)]
        return post_model_logits(model, tokens, distances, elapsed)
    if m:
        pooled = None if pooler is None else list(pooler(torch.stack(below)[:, None]))
        return classify(model, pooled, fuse(base.fusion, vectors, contexts))
    if "pooler_output" in output:
        return classify(model, None, list(output.pooler_output))
    return classify(model, None, list(pooler(output.last_hidden_state)))


def dense_logits(model, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Returns the logits (rows, streams, classes) of a batch as the model takes it."""
    index = batch["stream_index"]
    logits = torch.zeros(*index.shape[:2], model.config.num_labels)
    for row in range(index.shape[0]):
        for stream in range(index.shape[1]):
            slots = [
                s
                for s, p in enumerate(index[row, stream].tolist())
                if p >= 0 and batch["attention_mask"][row, p].any()
            ]
            if not slots or slots[-1] != index.shape[2] - 1:
                continue
            posts = []
            for slot in slots:
                post = index[row, stream, slot]
                real = batch["attention_mask"][row, post].bool()
                names = [name for name in ("input_ids", "time_ids") if name in batch]
                posts.append({name: batch[name][row, post][real].unsqueeze(0) for name in names})
            elapsed = batch["elapsed"][row, stream, slots].tolist() if "elapsed" in batch else None
            distances = [slots[-1] - slot for slot in slots]
            logits[row, stream] = stream_logits(model, posts, distances, elapsed)
    return logits
