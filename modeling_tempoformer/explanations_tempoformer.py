"""Why a post got its label: attention to the earlier posts of its stream, and the probabilities without each."""

import torch

from .configuration_tempoformer import TempoFormerConfig
from .decisions_tempoformer import decide
from .packing_tempoformer import PackedPosts, measure, read, scatter, to_device


def explain_streams(
    model: torch.nn.Module,
    attention_mask: torch.LongTensor,
    stream_index: torch.LongTensor,
    elapsed: torch.FloatTensor | None = None,
    time_ids: torch.LongTensor | None = None,
    **inputs: torch.LongTensor,
) -> dict[str, torch.Tensor]:
    """
    Logits of streams, and of the same streams without each of their earlier posts.

    Without a post, those before it move up by one place, and one older post enters. All posts are encoded once, and no
    more streams are read at a time than the batch has, so that this takes no more memory than plain prediction.

    Args:
        model ([`TempoFormerForStreamClassification`]): In evaluation mode.
        attention_mask, stream_index, elapsed, time_ids, inputs:
            A batch of [`StreamCollator`] with a window of one post more than the model's: the oldest post of each
            stream is the one that enters.

    Returns:
        `logits` (batch_size, num_streams, window, num_labels): of the stream itself, and without each of its posts but
        the newest, oldest first; `attention` (batch_size, num_streams, num_stream_layers, window), from the newest
        post to each post of its stream, oldest first, mean over heads. The values of absent posts mean nothing.
    """
    base, window, shape = model.base_model, model.config.window, stream_index.shape[:2]
    base.check_times(elapsed, time_ids)
    # All values that shapes depend on, in one transfer.
    mask, streams_of_rows = attention_mask.flatten(0, 1).bool(), stream_index.flatten(0, 1)
    lengths, counts, newest = read(*measure(mask), streams_of_rows[:, -1])
    posts = PackedPosts(mask, lengths, counts, base.adapter.runs_on_groups)
    times = None if time_ids is None else time_ids.flatten(0, 1)
    states = base.encode_posts(posts, {name: tensor.flatten(0, 1) for name, tensor in inputs.items()}, times)
    states = base.pool_tokens(posts, states)
    targets = to_device([stream for stream, post in enumerate(newest) if post >= 0], mask.device)
    first_post = (targets // shape[1] * attention_mask.shape[1]).unsqueeze(-1)
    index = streams_of_rows[targets]
    index = torch.where(index < 0, -1, index + first_post)
    elapsed = None if elapsed is None else elapsed.flatten(0, 1)[targets]
    slots = torch.arange(window, device=index.device)
    # The slots that are left without each. The first slot has the post that enters: without it a stream is as usual.
    all_kept = slots + (slots >= slots.unsqueeze(-1))

    def classify(
        part: slice, kept: torch.LongTensor, output_attentions: bool
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Logits (targets, len(kept), num_labels) of the streams of some targets, and their attention."""
        # Not computed where there is no post to leave out.
        is_real = (index[part, : len(kept)] >= 0) | (slots[: len(kept)] == 0)
        streams = index[part, kept].masked_fill(~is_real.unsqueeze(-1), -1).flatten(0, 1)
        tau = base.log_time(None if elapsed is None else elapsed[part, kept].flatten(0, 1), streams)
        mask = streams >= 0
        outputs, pooled, attentions = base.read_streams(
            posts, states, times, streams.clamp_min(0), mask, *read(streams), tau, output_attentions
        )
        # One row that holds all streams.
        pooled = None if pooled is None else pooled.unsqueeze(0)
        logits = model.classifier(outputs.unsqueeze(0), pooled, mask.unsqueeze(0)).squeeze(0)
        return logits.unflatten(0, (-1, len(kept))), attentions

    # Apart from the logits: streams that return attention compute all their posts.
    _, attentions = classify(slice(None), all_kept[:1], output_attentions=True)
    attention = torch.zeros(len(index), model.config.num_stream_layers, window, device=index.device)
    for layer, weights in enumerate(attentions):
        attention[:, layer] = weights[:, :, -1].float().mean(1)
    step = max(1, len(index) // window)
    parts = [slice(first, first + step) for first in range(0, len(index), step)]
    logits = torch.cat([classify(part, all_kept, output_attentions=False)[0] for part in parts])
    outputs = {"logits": logits, "attention": attention}
    return {name: scatter(values, targets, shape) for name, values in outputs.items()}


def explain_timeline(
    timeline: dict, outputs: dict[str, torch.Tensor], config: TempoFormerConfig, calibrated: bool = True
) -> list[dict]:
    """
    The explanation of each post of a timeline, in plain Python.

    Args:
        timeline (`dict`): Its `texts`, its `times` in seconds or None, and `order`, its posts from oldest to newest.
        outputs (`dict[str, torch.Tensor]`):
            What [`explain_streams`] returns for these posts, from oldest to newest, without the first axis.
        config ([`TempoFormerConfig`]): The model's.
        calibrated (`bool`, *optional*, defaults to `True`): Whether to apply the calibration, if there is one.

    Returns:
        A dict for each post, in the order of the input, as [`StreamClassificationPipeline.explain`] describes it.
    """
    texts, times, order = timeline["texts"], timeline["times"], timeline["order"]
    calibration = config.calibration if calibrated else None
    all_probabilities, all_ranked = decide(outputs["logits"], calibration)
    probabilities, ranked = all_probabilities[:, 0], all_ranked[:, 0]
    effects = (all_probabilities[:, :1] - all_probabilities[:, 1:]).transpose(1, 2).tolist()
    names = [config.id2label[label] for label in range(config.num_labels)]
    results: list = [None] * len(order)
    for place, (post, scores, attention) in enumerate(
        zip(order, probabilities.tolist(), outputs["attention"].tolist(), strict=True)
    ):
        stream = order[max(0, place - config.window + 1) : place + 1]
        absent = config.window - len(stream)
        label = int(ranked[place, 0])
        results[post] = {
            "text": texts[post],
            "timestamp": None if times is None else times[post],
            "label": names[label],
            "score": scores[label],
            "probabilities": dict(zip(names, scores, strict=True)),
            "stream": stream,
            "attention": [weights[absent:] for weights in attention],
            "effects": {name: of_class[absent:] for name, of_class in zip(names, effects[place], strict=True)},
        }
    return results
