"""Writes a model card from the templates in `hub_cards/`."""

import ast
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id
from transformers import PreTrainedModel

from .. import __version__
from ..common.files import PACKAGE, data_folder, written_whole
from ..common.markdown import escape_control_characters, markdown, table
from ..decisions_tempoformer import class_names


# The template, the tags and the family of each model type
DATED = ["temporal-attention", "semantic-change"]
STREAMS = ("tempoformer.md", ["tempoformer", "change-detection", "stream-classification"], "TempoFormer")
TEMPLATES: dict[str, tuple[str, list[str], str]] = {
    **dict.fromkeys(("post_tempoformer", "tempoformer"), STREAMS),
    "temporal_bert": ("temporal_bert.md", DATED, "BERT"),
    "temporal_roberta": ("temporal_bert.md", DATED, "RoBERTa"),
}
# The end of a class name, the Hub's task for it and the Auto class that loads it. The Hub has no task for streams: it
# finds a model of them under "text-classification", whose pipeline refuses it with the name of the right one.
HEADS = {
    "StreamClassification": ("text-classification", "AutoModelForSequenceClassification"),
    "MaskedLM": ("fill-mask", "AutoModelForMaskedLM"),
    "SequenceClassification": ("text-classification", "AutoModelForSequenceClassification"),
    "TokenClassification": ("token-classification", "AutoModelForTokenClassification"),
}
# The lines of a card that `watch_lines` writes
WATCH_LINES = re.compile(r"^- Class to watch: .*\n(?:- Alarms: .*\n)?", re.MULTILINE)
SCORES = {"accuracy": "Accuracy", "loss": "Loss", "perplexity": "Perplexity"}
PACKAGES = ("transformers", "torch", "datasets", "tokenizers", "huggingface_hub")


@dataclass(kw_only=True)
class CardContent:
    """
    The content of a model card besides the model's configuration. What is not given is left out or called "not
    stated".

    Attributes:
        repo_id (`str`, *optional*): Hub id that the code example loads. If omitted, it loads the folder as it is
            given, or by its name if the path is absolute.
        model_name (`str`, *optional*): Title; the last part of `repo_id` if omitted.
        base_model (`str`, *optional*): Hub id of the model that training started from, or its folder; the card
            has the folder's last part alone.
        language, license, tags, dataset, dataset_tags, dataset_args: As [`Trainer.create_model_card`] takes them.
        max_tokens (`int`, *optional*): Number of tokens that longer texts are truncated to.
        scores (`dict[str, dict[str, float]]`): Scores by split (`"validation"`, `"test"`) and by name, as
            [`compute_scores`] and the Trainer name them, measured with the calibration that the configuration holds.
        titles (`dict[str, str]`): The titles of the scores that the card shows, besides accuracy, loss and perplexity,
            by the names of the scores without their classes.
        verdict (`list[str]`): A summary of the model's test, in sentences.
        alarm (`str`, *optional*): A sentence on the alarm of the model's calibration ([`alarm_sentence`]).
        groups (`list[list[str]]`): A table of the scores of groups of test posts, its header first.
        costs (`list[list[str]]`): A table of what alarms cost on test posts, its header first.
        confusion (`list[list[str]]`): A table of how many test posts of each given state are predicted as each, its
            header first.
        figures (`dict[str, str]`): Descriptions of the figures in the folder, by the name of the file.
        training (`dict[str, Any]`, *optional*): Settings of the training, for example arguments by name.
        trained_on (`dict[str, Any]`, *optional*): The numbers of `"timelines"` and of `"posts"` of the training, and
            `"labels"`, the number of posts with each label by its name.
        evaluations (`list[dict[str, Any]]`): A table row for each evaluation, with the same keys in all.
    """

    repo_id: str | None = None
    model_name: str | None = None
    base_model: str | None = None
    language: str | Sequence[str] | None = None
    license: str | None = None
    tags: str | Sequence[str] = ()
    dataset: str | Sequence[str] = ()
    dataset_tags: str | Sequence[str] = ()
    dataset_args: str | Sequence[str] = ()
    max_tokens: int | None = None
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    titles: Mapping[str, str] = field(default_factory=dict)
    verdict: Sequence[str] = ()
    alarm: str | None = None
    groups: Sequence[Sequence[str]] = ()
    costs: Sequence[Sequence[str]] = ()
    confusion: Sequence[Sequence[str]] = ()
    figures: Mapping[str, str] = field(default_factory=dict)
    training: Mapping[str, Any] | None = None
    trained_on: Mapping[str, Any] | None = None
    evaluations: Sequence[Mapping[str, Any]] = ()


def write_card(model: PreTrainedModel, folder: str | Path, content: CardContent | None = None):
    """
    Writes the model card `README.md` into the folder of a saved model, in the place of an older one. Names are
    escaped.

    Args:
        model (`PreTrainedModel`): The saved model, a TempoFormer or one with temporal attention.
        folder (`str` or `Path`): The folder of the saved model.
        content ([`CardContent`], *optional*): The content of the card besides the model's configuration.

    Raises a `ValueError` for a model without a template.
    """
    content = content or CardContent()
    if not has_card(model):
        raise ValueError(
            f"There is no card for a '{model.config.model_type}' model; only for: {', '.join(TEMPLATES)}."
        )
    config = model.config
    template, model_tags, family = TEMPLATES[type(config).model_type]
    heads = [head for name, head in HEADS.items() if type(model).__name__.endswith(name)]
    task, auto_class = heads[0] if heads else ("feature-extraction", "AutoModel")
    folder, watched = Path(folder), getattr(config, "watched", None)
    # An absolute path would tell of this machine, and mean nothing on another one.
    repo_id = content.repo_id or (
        folder.as_posix() if folder.name and not folder.is_absolute() else folder.resolve().name
    )
    name = escape_control_characters(content.model_name or repo_id.split("/")[-1])
    base_model = public_id(content.base_model)
    languages, datasets = as_list(content.language), as_list(content.dataset_tags)
    labels = class_names(config)
    kinds = SCORES | dict(content.titles)
    shown = score_titles(kinds, labels)
    in_turn = [split for split, values in content.scores.items() if values.get("held_out_in_turn")]
    # The Hub rejects NaN and infinity.
    scores = {
        split: {score: values[score] for score in shown if math.isfinite(values.get(score, math.nan))}
        for split, values in content.scores.items()
    }
    results = [
        EvalResult(
            task_type=task,
            dataset_type=(datasets or ["unknown"])[0],
            dataset_name=(as_list(content.dataset) or datasets or ["unknown"])[0],
            dataset_config=(as_list(content.dataset_args) or [None])[0],
            dataset_split=split,
            metric_type=shown[score][0],
            metric_name=shown[score][1],
            metric_value=value,
        )
        for split, values in scores.items()
        for score, value in values.items()
    ]
    data = ModelCardData(
        library_name="transformers",
        pipeline_tag=task,
        tags=[*model_tags, *as_list(content.tags)],
        base_model=base_model,
        language=languages or None,
        license=content.license and escape_control_characters(content.license),
        datasets=datasets or None,
        metrics=list(dict.fromkeys(result.metric_type for result in results)) or None,
        model_name=name if results else None,
        eval_results=results or None,
    )
    templates = [data_folder("hub_cards") / file for file in (template, "shared.md")]
    card = ModelCard.from_template(
        data,
        template_str="\n".join([*(file.read_text(encoding="utf-8") for file in templates), ""]),
        markdown=markdown,
        table=table,
        config=config,
        auto_class=auto_class,
        family=family,
        title=name,
        repo_id=repo_id,
        base_model=base_model,
        base_folder=Path(content.base_model).name if content.base_model and base_model is None else None,
        labels=labels,
        example_day=example_day(getattr(getattr(config, "encoder_config", config), "times", ())),
        max_tokens=content.max_tokens,
        languages=languages,
        datasets=as_list(content.dataset) or datasets,
        license=content.license,
        in_turn=in_turn,
        results={split: score_tables(values, kinds, labels) for split, values in scores.items() if values},
        verdict=content.verdict,
        watch_lines="" if watched is None else watch_lines(config.id2label[watched], content.alarm),
        groups=content.groups and table(content.groups[0], content.groups[1:]),
        costs=content.costs and table(content.costs[0], content.costs[1:]),
        confusion=content.confusion and table(content.confusion[0], content.confusion[1:]),
        figures=content.figures,
        training=content.training,
        trained_on=content.trained_on,
        evaluations=content.evaluations
        and table(content.evaluations[0], [row.values() for row in content.evaluations]),
        code=code_files(folder),
        versions=[f"modeling-tempoformer {__version__}", *(f"{package} {version(package)}" for package in PACKAGES)],
    )
    card.save(folder / "README.md")


def code_files(folder: Path) -> dict[str, str]:
    """Returns the modules of this package in the folder of a model, each with the first sentence of its docstring."""
    modules = [path for path in sorted(PACKAGE.glob("*.py")) if (folder / path.name).exists()]
    texts = {path.name: ast.get_docstring(ast.parse(path.read_text("utf-8"))) for path in modules}
    return {name: " ".join((text or "").split(". ")[0].split()).removesuffix(".") for name, text in texts.items()}


def watch_lines(name: str, alarm: str | None) -> str:
    """The lines of a card on the class to watch, and on its alarm if there is a sentence on it."""
    rule = "" if alarm else ", and a post with this label is an alarm"
    lines = [f"- Class to watch: {markdown(name)}; pages open on it{rule}"]
    return "\n".join([*lines, *([f"- Alarms: {markdown(alarm)}"] if alarm else [])])


def update_alarm(folder: str | Path, name: str, alarm: str):
    """Writes the [`watch_lines`] of a class and a sentence into the card of a folder, if it has such lines."""
    path = Path(folder) / "README.md"
    if path.exists():
        lines = f"{watch_lines(name, alarm)}\n"
        card = path.read_text(encoding="utf-8")
        with written_whole(path) as partial:
            partial.write_text(WATCH_LINES.sub(lambda _: lines, card, count=1), encoding="utf-8")


def has_card(model: Any) -> bool:
    """Tells whether there is a template for this model."""
    # The class tells the type, because a configuration that was made from BERT's is a "bert" until it is saved.
    return isinstance(model, PreTrainedModel) and type(model.config).model_type in TEMPLATES


def example_day(times: Sequence[str]) -> str:
    """A day in the last time point of the encoder, if it has any."""
    date = re.match(r"(\d{4})(-\d\d(?!\d))?(-\d\d(?!\d))?", times[-1]) if times else None
    return f"{date[1]}{date[2] or '-05'}{date[3] or '-01'}" if date else "2024-05-01"


def public_id(name: str | None) -> str | None:
    """The name if it may be a Hub id, and None for a local folder."""
    if not name or Path(name).exists():
        return None
    try:
        validate_repo_id(name)
    except HFValidationError:
        return None
    return name


def drop_private_base(path: Path):
    """Removes a local folder as `base_model` from a PEFT card, because the Hub rejects it."""
    card = ModelCard.load(path)
    if card.data.base_model is not None and public_id(card.data.base_model) is None:
        card.data.base_model = None
        card.data.tags = [tag for tag in card.data.tags or () if not tag.startswith("base_model:")]
        card.save(path)


def as_list(value: str | Sequence[str] | None) -> list[str]:
    """A list of one or several texts, without control characters."""
    values = [value] if isinstance(value, str) else value or ()
    return [escape_control_characters(entry) for entry in values if entry is not None]


def score_titles(kinds: Mapping[str, str], labels: Sequence[str]) -> dict[str, tuple[str, str]]:
    """The Hub's metric type and the title of each score that a card shows, by name."""
    titles = {}
    for kind, title in kinds.items():
        titles |= {kind: (kind, title), f"macro_{kind}": (kind, f"Macro {title}")}
        titles |= {f"{kind}_{label}": (kind, f"{title} ({escape_control_characters(label)})") for label in labels}
    return titles


def score_tables(scores: Mapping[str, float], kinds: Mapping[str, str], labels: Sequence[str]) -> str:
    """A table of the scores by class with their macro averages, and one of the other scores."""
    columns = [kind for kind in kinds if scores.keys() & {f"macro_{kind}", *(f"{kind}_{label}" for label in labels)}]
    rows = [[label, *(scores.get(f"{kind}_{label}") for kind in columns)] for label in labels]
    rows.append(["macro average", *(scores.get(f"macro_{kind}") for kind in columns)])
    by_class = [row for row in rows if any(value is not None for value in row[1:])]
    others = [[title, scores[kind]] for kind, title in kinds.items() if kind in scores]
    tables = {("class", *(kinds[kind] for kind in columns)): by_class, ("score", "value"): others}
    return "\n\n".join(table(header, rows) for header, rows in tables.items() if rows)
