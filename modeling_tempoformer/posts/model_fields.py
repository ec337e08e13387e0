"""The fields of a new model's configuration that its training posts decide."""

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..common.command_line import class_named
from ..modeling_post_tempoformer import PostTempoFormerForStreamClassification
from ..modeling_streams_tempoformer import StreamPreTrainedModel
from ..timeline_tempoformer import Timeline
from .states import choose_states, first_posts_rule, no_change_class
from .surveys import Survey, survey
from .timelines import TimelineStream


logger = logging.getLogger(__name__)

# Macro F1 is as good as with 2^15 and 2^17 (benchmarks/results/default.md).
NUM_WORDS = 2**14


def fields_of_posts(
    timelines: Sequence[Timeline] | TimelineStream,
    names: Sequence[str],
    model_class: type[StreamPreTrainedModel] = PostTempoFormerForStreamClassification,
    freezes_encoder: bool = True,
    no_change_label: str | None = None,
    summary: Survey | None = None,
    reads_known_states: bool = False,
) -> dict[str, Any]:
    """
    Returns the fields of a new model's configuration that its training posts decide, for
    [`~StreamPreTrainedModel.from_encoder_pretrained`]: `id2label` and `label2id`; `class_weights` (paper, section
    4.4); `timed`; `watched`, the rarest class; `first_posts` and `no_change` if the first posts of timelines
    or speakers never have a label; and for the post model `reads_speakers`, if timelines have several, and over a
    frozen encoder `num_words` and the `states` of posts with their `state_values`.

    Args:
        timelines (`Sequence[Timeline]` or [`TimelineStream`]): The training posts. Speakers and states of a stream are
            ignored, since learning them takes all posts at once.
        names (`Sequence[str]`): The classes, in the order of their ids.
        model_class (`type`, *optional*): The class of the model, the post model by default.
        freezes_encoder (`bool`, *optional*, defaults to `True`): False if the encoder learns, too.
        no_change_label (`str`, *optional*): The class of first posts. Default: the most frequent class of posts with
            the same state as the post that they are compared with; without states the largest.
        summary ([`Survey`], *optional*): The survey of the timelines, if it is known.
        reads_known_states (`bool`, *optional*, defaults to `False`): If True, the model `reads_known_states`.

    Raises a `ValueError` for a class without posts, for states that cannot be learned, for known states that the
    posts or the model do not have, and for a `no_change_label` that is no class or not needed.
    """
    summary = survey(timelines) if summary is None else summary
    fields = {
        "id2label": dict(enumerate(names)),
        "label2id": {name: label for label, name in enumerate(names)},
        "class_weights": choose_class_weights(summary.labels, names),
        "timed": summary.timed,
    }
    if isinstance(timelines, TimelineStream):
        first = next(iter(timelines))
        if first.states is not None or first.speakers is not None:
            logger.warning("The states and speakers of a stream are not learned from: that takes all posts at once.")
    else:
        fields |= fields_of_people(timelines, model_class, freezes_encoder)
    if reads_known_states:
        if "states" not in fields:
            raise ValueError(
                "--known_states needs posts with states, which are held, and the post model over a frozen encoder, "
                "which learns them: leave it out, or see docs/states.md."
            )
        fields["reads_known_states"] = True
        logger.info("A post is read with the states of earlier posts, as far as they are known, and never its own.")
    no_change = None if no_change_label is None else class_named(no_change_label, names, "no_change_label")
    rule = first_posts_rule(summary.first_posts, fields.get("reads_speakers", False))
    if rule is not None:
        no_change = no_change_class(summary.labels, summary.unchanged, len(names)) if no_change is None else no_change
        logger.info(
            "The first post of a %s never has a label: such posts are predicted as %s (--no_change_label).",
            *(rule, names[no_change]),
        )
        fields |= {"first_posts": rule, "no_change": no_change}
    elif no_change is not None:
        raise ValueError(
            f"--no_change_label {no_change_label} is the class of first posts where none has a label, but here some "
            "have one, or they are few: leave it out."
        )
    return fields | {"watched": choose_watched(summary.labels, names, no_change)}


def fields_of_people(
    timelines: Sequence[Timeline], model_class: type[StreamPreTrainedModel], freezes_encoder: bool
) -> dict[str, Any]:
    """Returns the fields for speakers, and over a frozen encoder those for words and for the states of posts."""
    fields: dict[str, Any] = {}
    is_post_model = issubclass(model_class, PostTempoFormerForStreamClassification)
    has_speakers = all(timeline.speakers is not None for timeline in timelines)
    several = has_speakers and any(len(set(timeline.speakers) - {""}) > 1 for timeline in timelines)
    if is_post_model and several:
        fields["reads_speakers"] = True
    if is_post_model and freezes_encoder:
        fields["num_words"] = NUM_WORDS
    states = choose_states(timelines)
    if states is not None and is_post_model and freezes_encoder:
        fields |= {"states": states.names, "state_values": states.values}
        logger.info("The model learns the state of each post: %s.", ", ".join(states.names))
    elif states is not None:
        logger.warning("The states of posts are not learned: only the post model over a frozen encoder learns them.")
    return fields


def class_weights(labels: Counter[int], num_labels: int) -> list[float]:
    """
    Returns the weight `sqrt(1 / p)` of each class, where p is its share of the labelled training posts (paper, section
    4.4). `labels` counts the posts of each class id.
    """
    counts = np.array([labels[label] for label in range(num_labels)])
    if not counts.all():
        raise ValueError(f"Some class has no post in the training split; posts of each class: {counts.tolist()}.")
    return np.sqrt(counts.sum() / counts).tolist()


def choose_class_weights(labels: Counter[int], names: list[str]) -> list[float]:
    """Returns the [`class_weights`], which are also logged."""
    weights = class_weights(labels, len(names))
    shown = ", ".join(f"{name} {weight:.2f}" for name, weight in zip(names, weights, strict=True))
    logger.info("Class weights in the loss, from the shares of the training posts: %s", shown)
    return weights


def choose_watched(labels: Counter[int], names: list[str], no_change: int | None) -> int:
    """
    Returns the rarest class except `no_change`, and logs it. `labels` counts the training posts of each class.
    """
    watched = min((label for label in range(len(names)) if label != no_change), key=labels.__getitem__)
    besides = "" if labels[watched] == min(map(labels.__getitem__, range(len(names)))) else f" but {names[no_change]}"
    logger.info("Pages and tables of the model watch the rarest class%s, %s (--watch).", besides, names[watched])
    return watched
