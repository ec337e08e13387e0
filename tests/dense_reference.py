"""TempoFormer written out plainly: every stream by itself, every post of it anew, one post and one head at a time."""

import math

import torch


def encode(model, post: dict[str, torch.Tensor], layers) -> torch.Tensor:
    """One post (1, tokens), without padding, through some of the encoder's layers."""
    states = model.tempoformer.encoder.embeddings(input_ids=post["input_ids"])
    for layer in layers:
        states = layer(states, **read_time(model, post))
    return states


def read_time(model, post: dict[str, torch.Tensor]) -> dict:
    """What the layers of an encoder with temporal attention need besides."""
    return model.tempoformer.encoder.time_inputs(post["time_ids"], None) if "time_ids" in post else {}


def rotate(vector: torch.Tensor, tau: float, theta: float) -> torch.Tensor:
    """Each pair of values as a complex number, turned by `tau` times its frequency."""
    turned = []
    for i in range(len(vector) // 2):
        angle = tau * theta ** (-2 * i / len(vector))
        x, y = vector[2 * i], vector[2 * i + 1]
        turned += [x * math.cos(angle) - y * math.sin(angle), x * math.sin(angle) + y * math.cos(angle)]
    return torch.stack(turned)


def stream_attention(attention, cls: list[torch.Tensor], taus: list[float] | None) -> list[torch.Tensor]:
    """Each post's attention to all posts of its stream."""
    size, theta = attention.head_dim, attention.config.rope_theta
    heads = []
    for head in range(attention.num_heads):
        part = slice(head * size, (head + 1) * size)
        queries, keys, values = (
            [projection(vector)[part] for vector in cls]
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
    return [attention.o_proj(torch.cat(outputs)) for outputs in zip(*heads, strict=True)]


def stream_logits(
    model, posts: list[dict[str, torch.Tensor]], distances: list[int], elapsed: list[float] | None
) -> torch.Tensor:
    """Logits of one stream: its posts oldest to newest and without padding, and how far each is from the newest."""
    config, base = model.config, model.tempoformer
    layers = base.encoder.encoder.layer
    m = config.num_stream_layers
    states = [encode(model, post, layers[: len(layers) - m]) for post in posts]
    taus = None
    if config.stream_attention != "full":
        taus = [float(distance) for distance in distances]
    if config.stream_attention == "temporal_rotary" and elapsed is not None:
        taus = [math.log(max(seconds, 1.0)) for seconds in elapsed]
    pooled = None if base.encoder.pooler is None else [base.encoder.pooler(state)[0] for state in states]
    vectors = pooled
    for index in range(m):
        stream_layer = base.stream_layers[index]
        if stream_layer.position is not None:
            for number in range(len(posts)):
                place = torch.tensor(config.window - 1 - distances[number])
                states[number] = stream_layer.position.norm(states[number] + stream_layer.position.embedding(place))
        layer = layers[len(layers) - m + index]
        states = [layer(state, **read_time(model, post)) for state, post in zip(states, posts, strict=True)]
        own = [state[0, 0] for state in states]
        vectors = stream_attention(stream_layer.attention, own, taus)
        states = [torch.cat((v.view(1, 1, -1), state[:, 1:]), 1) for v, state in zip(vectors, states, strict=True)]
    if m and base.fusion is not None:
        joined = []
        for c, context in zip(own, vectors, strict=True):
            gate = base.fusion.gate(torch.cat((c, context))).sigmoid()
            joined.append(base.fusion.norm((1 - gate) * c + gate * context))
        vectors = joined
    head = model.classifier
    if config.head == "lstm":
        if m:
            vectors = [head.dense(vector).tanh() for vector in vectors]
        order = vectors[::-1] if config.recurrent_order == "reverse" else vectors
        features = head.lstm(torch.stack(order).unsqueeze(0))[0][0, -1]
    else:
        features = torch.cat((pooled[-1], vectors[-1])) if m else vectors[-1]
    return head.mlp(features)


def dense_logits(model, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Logits (rows, streams, classes) of a batch as the model takes it."""
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
