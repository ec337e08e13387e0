"""Why a post got its label: attention to the earlier posts of its stream, and the probabilities without each."""

import torch

from .configuration_tempoformer import TempoFormerConfig
from .decisions_tempoformer import decide
from .packing_tempoformer import PostGroups


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

    Without a post, those before it move up by one place, and one older post enters. All posts are encoded once; the
    streams without a post are read in turn, so that this takes no more memory than their plain prediction.

    Args:
        model ([`TempoFormerForStreamClassification`]): In evaluation mode.
        attention_mask, stream_index, elapsed, time_ids, inputs:
            A batch of [`StreamCollator`] with a window of one post more than the model's: the oldest post of each
            stream is the one that enters.

    Returns:
        `logits` (batch_size, num_streams, num_labels); `without` (batch_size, num_streams, window - 1, num_labels),
        the logits without each earlier post of the stream, oldest first; and `attention` (batch_size, num_streams,
        num_stream_layers, window), from the newest post to each post of its stream, oldest first, mean over heads.
        The values of absent posts mean nothing.
    """
    base, window = model.base_model, model.config.window
    base.check_times(elapsed, time_ids)
    num_posts, shape = attention_mask.shape[1], stream_index.shape[:2]
    posts = PostGroups(attention_mask.flatten(0, 1).bool(), None if time_ids is None else time_ids.flatten(0, 1))
    inputs = {name: tensor.flatten(0, 1) for name, tensor in inputs.items()}
    states = base.pool_tokens(posts, base.encode_posts(posts, inputs))
    first_post = torch.arange(shape[0], device=stream_index.device)[:, None, None] * num_posts
    index = torch.where(stream_index < 0, -1, stream_index + first_post).flatten(0, 1)
    elapsed = None if elapsed is None else elapsed.flatten(0, 1)

    def read_without(slot: int, output_attentions: bool = False) -> tuple[torch.Tensor, list[torch.Tensor]]:
        kept = [other for other in range(window + 1) if other != slot]
        streams = index[:, kept]
        tau = base.log_time(None if elapsed is None else elapsed[:, kept], streams)
        if slot:
            # Not computed where there is no post to leave out.
            streams = streams.masked_fill(index[:, slot, None] < 0, -1)
        mask = streams >= 0
        outputs, pooled, attentions = base.read_streams(
            posts, states, streams.clamp_min(0), mask, tau, output_attentions
        )
        pooled = None if pooled is None else pooled.unsqueeze(0)
        return model.classifier(outputs.unsqueeze(0), pooled, mask.unsqueeze(0)).squeeze(0), attentions

    # The usual stream is the one without the post before it.
    logits, attentions = read_without(0, output_attentions=True)
    without = logits.new_zeros(len(index), window - 1, logits.shape[-1])
    for slot in range(max(1, window + 1 - num_posts), window):
        without[:, slot - 1], _ = read_without(slot)
    newest = [weights[:, :, -1].float().mean(1) for weights in attentions]
    attention = torch.stack(newest, 1) if newest else logits.new_zeros(len(index), 0, window)
    outputs = {"logits": logits, "without": without, "attention": attention}
    return {name: tensor.unflatten(0, shape) for name, tensor in outputs.items()}


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
    probabilities, ranked = decide(outputs["logits"], calibration)
    effects = (probabilities.unsqueeze(1) - decide(outputs["without"], calibration)[0]).transpose(1, 2).tolist()
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
