"""From a model and timelines to the page that shows them."""

import logging
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import PreTrainedTokenizerBase
from transformers.utils.logging import tqdm

from ..configuration_tempoformer import TempoFormerConfig
from ..modeling_tempoformer import TempoFormerForStreamClassification
from ..pipeline_tempoformer import StreamClassificationPipeline


logger = logging.getLogger(__name__)

# Files whose names begin with an underscore are never pushed.
TIMELINES = "_timelines.html"


def write_view(
    path: str | Path,
    model: TempoFormerForStreamClassification,
    tokenizer: PreTrainedTokenizerBase,
    timelines: Dataset,
    title: str,
):
    """
    Explains timelines and writes their page.

    Args:
        path (`str` or `Path`): The file.
        model, tokenizer: A trained model, on the device that is to be used.
        timelines (`Dataset`): As [`to_timelines`] returns them; their labels are shown.
        title (`str`): Heading of the page.
    """
    # Here, because the extra `view` is not always installed.
    from .timeline_page import write_timeline_page

    pipe = StreamClassificationPipeline(model=model.eval(), tokenizer=tokenizer, device=model.device)
    names, thresholds = classes_of(model.config)
    write_timeline_page(path, explain_timelines(pipe, timelines), names, thresholds=thresholds, title=title)
    logger.info("Timelines to look at: %s", path)


def explain_timelines(pipe: StreamClassificationPipeline, timelines: Dataset) -> list[dict[str, Any]]:
    """The explained timelines as [`timeline_page`] takes them, with the labels that the posts have."""
    names, _ = classes_of(pipe.model.config)
    inputs = ({"text": timeline["texts"], "timestamp": timeline.get("timestamps")} for timeline in timelines)
    explained = tqdm(pipe.explain(inputs), total=len(timelines), desc="Explaining timelines")
    return [
        {
            "id": timeline["timeline_id"],
            "posts": [
                {**post, "actual": names[label] if label >= 0 else None}
                for post, label in zip(posts, timeline["labels"], strict=True)
            ],
        }
        for timeline, posts in zip(timelines, explained, strict=True)
    ]


def classes_of(config: TempoFormerConfig) -> tuple[list[str], list[float] | None]:
    """The names of the classes by id, and their decision thresholds if the model is calibrated."""
    return [config.id2label[label] for label in range(config.num_labels)], (config.calibration or {}).get("thresholds")
