"""From a model and timelines to the page that shows them."""

import logging
from pathlib import Path

from datasets import Dataset
from transformers import PreTrainedTokenizerBase
from transformers.utils.logging import tqdm

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
    from ..view.timeline_page import write_timeline_page

    pipe = StreamClassificationPipeline(model=model.eval(), tokenizer=tokenizer, device=model.device)
    config = model.config
    names = [config.id2label[label] for label in range(config.num_labels)]
    inputs = (
        {"text": timeline["texts"], **({"timestamp": timeline["timestamps"]} if "timestamps" in timeline else {})}
        for timeline in timelines
    )
    explained = tqdm(pipe.explain(inputs), total=len(timelines), desc="Explaining timelines")
    shown = [
        {
            "id": timeline["timeline_id"],
            "posts": [
                {**post, "actual": names[label] if label >= 0 else None}
                for post, label in zip(posts, timeline["labels"], strict=True)
            ],
        }
        for timeline, posts in zip(timelines, explained, strict=True)
    ]
    write_timeline_page(path, shown, names, thresholds=(config.calibration or {}).get("thresholds"), title=title)
    logger.info("Timelines to look at: %s", path)
