"""Shows a model's explanations of timelines on a page, in a file or in a notebook."""

import logging
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import torch
from huggingface_hub.utils import tqdm
from transformers import AutoModelForSequenceClassification, AutoTokenizer, PreTrainedConfig, PreTrainedTokenizerBase

from ..checks_tempoformer import check_whole
from ..common.pages import check_view, write_html
from ..configuration_post_tempoformer import PostTempoFormerConfig
from ..configuration_tempoformer import TempoFormerConfig
from ..decisions_tempoformer import alarm_threshold, class_names
from ..modeling_streams_tempoformer import StreamPreTrainedModel
from ..names_tempoformer import read_id, read_name
from ..pipeline_tempoformer import StreamClassificationPipeline
from ..posts.states import check_states
from ..timeline_tempoformer import NO_LABEL, Post, Timeline


logger = logging.getLogger(__name__)

# Files whose names begin with an underscore are never pushed.
TIMELINES = "_timelines.html"
MODELS = (PostTempoFormerConfig, TempoFormerConfig)


def load_pipeline(
    name: str, dtype: torch.dtype | str = torch.float32, **downloads: Any
) -> StreamClassificationPipeline:
    """
    Loads the pipeline of a TempoFormer with the classes of this package, so that code beside the weights never runs.

    Args:
        name (`str`): A folder or a Hub id.
        dtype (`torch.dtype` or `str`, *optional*, defaults to `torch.float32`): The dtype of the weights.
        downloads: The arguments `token`, `revision` or `cache_dir` of Transformers.

    Raises a `ValueError` for a model of another kind or without a head, and an `OSError` if there is no model.
    """
    kind = PreTrainedConfig.get_config_dict(name, **downloads)[0].get("model_type")
    if kind not in [config.model_type for config in MODELS]:
        raise ValueError(f"{name} is not a TempoFormer: its kind is '{kind}'.")
    sources = {"trust_remote_code": False, **downloads}
    settings = {"dtype": dtype, "output_loading_info": True, **sources}
    model, info = AutoModelForSequenceClassification.from_pretrained(name, **settings)
    # Including a head's weights, because nothing here trains them.
    check_whole(name, info["missing_keys"])
    tokenizer = AutoTokenizer.from_pretrained(name, **sources)
    return StreamClassificationPipeline(model=model, tokenizer=tokenizer)


def write_view(
    path: str | Path,
    model: StreamPreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    timelines: Sequence[Timeline],
    title: str,
    verdict: Sequence[str],
    watched_speakers: Sequence[str] | None = None,
    folder: str | Path | None = None,
    confusion: Sequence[Sequence[str]] = (),
):
    """
    Explains timelines of [`to_timelines`] on the model's device, and writes their page. If `folder`, the name of the
    model, is a folder, the page has the command that gives it a threshold. [`timeline_page`] says
    what the other arguments are.
    """
    # Imported here, because the extra `view` may not be installed.
    from .timeline_page import timeline_page

    pipe = StreamClassificationPipeline(model=model.eval(), tokenizer=tokenizer, device=model.device)
    explain_timelines(pipe, timelines)
    config = model.config
    fields = {"no_change": config.no_change, "watched": config.watched, "confusion": confusion}
    if folder is not None and Path(folder).is_dir():
        # An absolute path would tell of this machine.
        fields["model"] = Path(folder).name if Path(folder).is_absolute() else str(folder)
    names = class_names(config)
    write_html(path, timeline_page(timelines, names, config.calibration, title, verdict, watched_speakers, **fields))
    logger.info("Timelines to look at: %s", path)


def explain_timelines(pipe: StreamClassificationPipeline, timelines: Sequence[Timeline]):
    """
    Attaches the pipeline's explanations to timelines. Raises the `ValueError` of [`check_states`].
    """
    check_states(timelines, pipe.model.config)
    for _ in tqdm(pipe.explain(iter(timelines)), "Explaining", len(timelines)):
        pass


class NotebookPage(NamedTuple):
    """A page, `html`, that a notebook shows in a frame."""

    html: str

    def _repr_html_(self) -> str:
        return (
            f'<iframe title="Timelines" srcdoc="{escape(self.html)}" sandbox="allow-scripts allow-downloads" '
            'width="100%" height="900" style="border: 0"></iframe>'
        )


def show(explanation: Sequence[dict] | Sequence[Sequence[dict]], title: str = "Timelines") -> NotebookPage:
    """
    Makes the page of timelines for a notebook: `show(pipe.explain(timeline))`.

    Args:
        explanation: The result of the pipeline's `explain` for a timeline, or for a list of timelines. Each post may
            also have `actual`, the name of its class.
        title (`str`, *optional*, defaults to `"Timelines"`): Heading of the page.

    Returns:
        [`NotebookPage`]: Jupyter shows it; `html` is the page. Raises a `ValueError` without the extra `view`, and if
        there is no post.
    """
    check_view()
    from .timeline_page import timeline_page

    explanations = [explanation] if explanation and isinstance(explanation[0], dict) else explanation
    posts = [post for posts in explanations for post in posts]
    if not posts:
        raise ValueError("There is no post to show.")
    names = list(posts[0]["probabilities"])
    timelines = [to_timeline(f"Timeline {number}", posts, names) for number, posts in enumerate(explanations, 1)]
    return NotebookPage(timeline_page(timelines, names, title=title, **watched_class(posts[0], names)))


def watched_class(post: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Returns the calibration and the watched class of the model that explained a post, for [`timeline_page`]."""
    thresholds, threshold = post.get("thresholds"), post.get("watched_threshold")
    watched = names.index(post["watched"]) if "watched" in post else None
    calibration: dict[str, Any] = {"thresholds": thresholds and list(thresholds.values())}
    # With two classes, this may also be the threshold of the label.
    if threshold is not None and threshold != alarm_threshold(watched, len(names), calibration):
        calibration["alarm"] = {"label": watched, "threshold": threshold}
    return {"calibration": calibration, "watched": watched}


def to_timeline(name: str, explanations: Sequence[dict], names: Sequence[str]) -> Timeline:
    """Returns the timeline of explained posts."""
    actual = [read_name(post.get("actual")) for post in explanations]
    labels = [names.index(name) if name in names else NO_LABEL for name in actual]
    posts = [
        Post(
            row, post["text"], post["timestamp"], label=label, speaker=post.get("speaker") and read_id(post["speaker"])
        )
        for row, (post, label) in enumerate(zip(explanations, labels, strict=True))
    ]
    timeline = Timeline.from_posts(name, posts)
    timeline.explanations = [explanations[row] for row in timeline.input_rows]
    return timeline
