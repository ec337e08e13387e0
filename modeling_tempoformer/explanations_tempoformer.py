"""Why a post got its label: attention to the earlier posts of its stream, and the probabilities without each."""

import torch

from .configuration_tempoformer import TempoFormerConfig
from .decisions_tempoformer import decide


def explain_streams(
    model: torch.nn.Module,
    stream_index: torch.LongTensor,
    elapsed: torch.FloatTensor | None = None,
    **posts: torch.Tensor,
) -> dict[str, torch.Tensor]:
    """
    Logits of streams, and of the same streams without each of their earlier posts: `forward` on the same posts with
    more streams. Without a post, those before it move up by one place, and one older post enters. No more streams are
    read at a time than the batch has, so that this takes no more memory than plain prediction.

    Args:
        model ([`TempoFormerForStreamClassification`]): In evaluation mode.
        stream_index, elapsed, posts:
            A batch of [`StreamCollator`] with a window of one post more than the model's: the oldest post of each
            stream is the one that enters.

    Returns:
        `logits` (batch_size, num_streams, window, num_labels): of the stream itself, and without each of its posts but
        the newest, oldest first; `attention` (batch_size, num_streams, num_stream_layers, window), from the newest
        post to each post of its stream, oldest first, mean over heads. The values of absent posts mean nothing.
    """
    window, num_streams = model.config.window, stream_index.shape[1]
    posts = model.base_model.post_inputs(**posts)
    slots = torch.arange(window, device=stream_index.device)
    # The slots that are left without each. The first slot has the post that enters: without it a stream is as usual.
    kept = slots + (slots >= slots.unsqueeze(-1))
    # Not computed where there is no post to leave out.
    is_absent = (stream_index[..., :window] < 0) & (slots > 0)
    streams = stream_index[..., kept].masked_fill(is_absent.unsqueeze(-1), -1)
    elapsed = None if elapsed is None else elapsed[..., kept]
    logits, attention = [], []
    step = max(1, num_streams // window)
    for first in range(0, num_streams, step):
        part = slice(first, first + step)
        output = classify(model, posts, streams[:, part], None if elapsed is None else elapsed[:, part])
        logits.append(output.logits.unflatten(1, (-1, window)))
        # From the newest post of the usual streams.
        of_layers = [
            weights[:, ::window, :, -1].float().mean(2).to(stream_index.device) for weights in output.stream_attentions
        ]
        attention.append(
            torch.stack(of_layers, 2) if of_layers else logits[-1].new_zeros(*logits[-1].shape[:2], 0, window)
        )
    return {"logits": torch.cat(logits, 1), "attention": torch.cat(attention, 1)}


def classify(
    model: torch.nn.Module, posts: dict[str, torch.Tensor], streams: torch.LongTensor, elapsed: torch.Tensor | None
) -> torch.nn.Module:
    """The output for streams (batch_size, some, window, window), from the posts that they have and no others."""
    streams = streams.flatten(1, 2)
    num_posts = posts["attention_mask"].shape[1]
    first = min(int(streams.where(streams >= 0, num_posts).min()), num_posts - 1)
    end = max(int(streams.max()), first) + 1
    return model(
        **{name: values[:, first:end] for name, values in posts.items()},
        stream_index=streams.where(streams < 0, streams - first),
        elapsed=None if elapsed is None else elapsed.flatten(1, 2),
        output_stream_attentions=True,
    )


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
