"""Model cards from the templates in `hub_cards/`, for stream classifiers and for models of dated texts."""

import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id
from transformers import PreTrainedConfig

from .training_facts import TrainingFacts


DATED_ENCODERS = {"temporal_bert": "BERT", "temporal_roberta": "RoBERTa"}
CARD_TYPES = ("tempoformer", *DATED_ENCODERS)
PACKAGES = ("transformers", "torch", "datasets", "tokenizers", "huggingface_hub")
TIME_TEXTS = {
    "temporal_rotary": "queries and keys are rotated by the logarithm of the seconds to the newest post",
    "rotary": "queries and keys are rotated by the distance in posts to the newest; the seconds are not read",
    "full": "attention across posts does not read it",
}
ATTENTION_TEXTS = {
    "attention": "queries are multiplied by a matrix of the time points of the text",
    "scaled": "queries are multiplied by a number for each time point",
    "none": "attention does not read it",
}
# What the end of a class's name says: the Hub's task, and the Auto class that loads it.
HEADS = {
    "MaskedLM": ("fill-mask", "AutoModelForMaskedLM"),
    "SequenceClassification": ("text-classification", "AutoModelForSequenceClassification"),
    "TokenClassification": ("token-classification", "AutoModelForTokenClassification"),
}
KINDS = {"precision": "Precision", "recall": "Recall", "f1": "F1"}
OTHER_SCORES = {"accuracy": "Accuracy", "loss": "Loss", "perplexity": "Perplexity"}


def write_card(
    folder: str | Path,
    config: PreTrainedConfig,
    *,
    repo_id: str | None = None,
    model_name: str | None = None,
    base_model: str | None = None,
    language: str | Sequence[str] | None = None,
    license: str | None = None,
    tags: str | Sequence[str] = (),
    dataset: str | Sequence[str] = (),
    dataset_tags: str | Sequence[str] = (),
    dataset_args: str | Sequence[str] = (),
    timed: bool | None = None,
    max_tokens: int | None = None,
    scores: Mapping[str, Mapping[str, float]] | None = None,
    training: TrainingFacts | None = None,
):
    """
    Writes `README.md` into `folder`. What is not given is not said, or said to be unknown; names are escaped for
    Markdown, and folders of this machine are left out.

    Args:
        folder (`str` or `Path`): The saved model.
        config ([`TempoFormerConfig`], [`TemporalBertConfig`] or [`TemporalRobertaConfig`]): Of the model.
        repo_id (`str`, *optional*): Where the model is pushed to; the folder's name if omitted.
        model_name (`str`, *optional*): Its title; the end of `repo_id` if omitted.
        base_model (`str`, *optional*): Hub id of what it was trained from.
        language, license, tags, dataset, dataset_tags, dataset_args:
            As [`Trainer.create_model_card`] takes them: codes of languages, a licence, tags beside the model's own,
            names of datasets, their Hub ids, and their configurations.
        timed (`bool`, *optional*): Whether a stream classifier was trained with timestamps.
        max_tokens (`int`, *optional*): How many tokens of a text are read.
        scores (`dict[str, dict[str, float]]`, *optional*):
            For parts of the data (`"validation"`, `"test"`) scores by name, as [`StreamClassificationMetric`] and the
            Trainer name them.
        training ([`TrainingFacts`], *optional*): How it was trained.

    Raises a `ValueError` for a configuration of another model.
    """
    if not has_card(config):
        raise ValueError(f"There is no card for a '{config.model_type}'; only for: {', '.join(CARD_TYPES)}.")
    folder = Path(folder)
    repo_id = repo_id or folder.resolve().name
    name = model_name or repo_id.split("/")[-1]
    base_model = public_id(base_model)
    datasets = [found for found in map(public_id, as_list(dataset_tags)) if found]
    of_family = dated_facts(config) if type(config).model_type in DATED_ENCODERS else stream_facts(config, timed)
    labels = [config.id2label[index] for index in range(config.num_labels)]
    scores = {part: of_part for part, values in (scores or {}).items() if (of_part := finite(values))}
    results = [
        EvalResult(
            task_type=of_family["task"],
            task_name=of_family["task_name"],
            dataset_type=(datasets or ["unknown"])[0],
            dataset_name=(as_list(dataset) or datasets or ["unknown"])[0],
            dataset_config=(as_list(dataset_args) or [None])[0],
            dataset_split=part,
            metric_type=kind,
            metric_name=metric,
            metric_value=value,
        )
        for part, values in scores.items()
        for kind, metric, value in named_scores(values, labels)
    ]
    data = ModelCardData(
        library_name="transformers",
        pipeline_tag=of_family["task"],
        tags=[*of_family["tags"], *as_list(tags)],
        base_model=base_model,
        language=as_list(language) or None,
        license=license,
        datasets=datasets or None,
        metrics=list(dict.fromkeys(result.metric_type for result in results)) or None,
        model_name=name if results else None,
        eval_results=results or None,
        co2_eq_emissions=training.emissions if training is not None else None,
    )
    card = ModelCard.from_template(
        data,
        template_str=read_template(of_family["template"]) + "\n" + read_template("shared.md") + "\n",
        **of_family,
        title=markdown(name),
        repo_id=repo_id,
        base_model_text=markdown(base_model or ""),
        labels=list(map(markdown, labels)),
        max_tokens=max_tokens,
        language_text=", ".join(map(markdown, as_list(language))) or "not stated",
        dataset_text=", ".join(map(markdown, as_list(dataset) or datasets)) or "not stated",
        license_text=markdown(license or "not stated"),
        results={part: score_table(values, labels) for part, values in scores.items()},
        training=training,
        arguments_table=training and table(["argument", "value"], training.arguments.items()),
        epochs_table=training and epochs_table(training.epochs),
        emissions=training and training.emissions,
        hardware=training and markdown(training.hardware),
        versions=[f"{package} {version(package)}" for package in PACKAGES],
    )
    card.save(folder / "README.md")


def has_card(config: PreTrainedConfig) -> bool:
    """Whether there is a card for such a model."""
    # Of the class: until it is saved, a configuration that was read from a plain BERT's says that it is one.
    return type(config).model_type in CARD_TYPES


def stream_facts(config: PreTrainedConfig, timed: bool | None) -> dict[str, Any]:
    """What the card of a stream classifier says of its configuration."""
    time_text = TIME_TEXTS[config.stream_attention]
    if timed is False and config.stream_attention == "temporal_rotary":
        time_text = "trained on posts without timestamps, which are told apart by their distance in posts"
    encoder_times = getattr(config.encoder_config, "times", ())
    return {
        "template": "tempoformer.md",
        "task": "text-classification",
        "task_name": "Change detection in streams of posts",
        "tags": ["tempoformer", "change-detection"],
        "encoder_type": config.encoder_config.model_type,
        "encoder_times": list(map(markdown, encoder_times)),
        "example_day": example_day(encoder_times),
        "timed": timed is not False,
        "window": config.window,
        "stream_attention": config.stream_attention,
        "num_stream_layers": config.num_stream_layers,
        "time_text": time_text,
    }


def example_day(times: Sequence[str]) -> str:
    """A day, in the last of the times if there are any."""
    found = re.match(r"(\d{4})(-\d\d(?!\d))?(-\d\d(?!\d))?", times[-1]) if times else None
    return f"{found[1]}{found[2] or '-05'}{found[3] or '-01'}" if found else "2024-05-01"


def dated_facts(config: PreTrainedConfig) -> dict[str, Any]:
    """What the card of a model of dated texts says of its configuration."""
    architecture = (config.architectures or [""])[0]
    task, auto_class = next(
        (found for head, found in HEADS.items() if architecture.endswith(head)), ("feature-extraction", "AutoModel")
    )
    parts = [ATTENTION_TEXTS[config.temporal_attention]]
    if config.temporal_attention == "attention" and config.temporal_residual:
        parts.append("beside them as they are, with a learned weight for each head")
    if config.temporal_attention == "scaled":
        parts.append(f"by its {config.time_scaling} scale")
    if config.prepend_time:
        parts.append("texts begin with a token of their time")
    return {
        "template": "temporal_bert.md",
        "task": task,
        "task_name": task.replace("-", " ").capitalize(),
        "tags": ["temporal-attention", "semantic-change"],
        "auto_class": auto_class,
        "encoder_type": DATED_ENCODERS[type(config).model_type],
        "times": list(map(markdown, config.times)),
        "example_times": list(dict.fromkeys([*config.times[:1], *config.times[-1:]])),
        "time_text": "; ".join(parts),
    }


def read_template(name: str) -> str:
    return files("modeling_tempoformer.hub_cards").joinpath(name).read_text(encoding="utf-8")


def public_id(name: str | None) -> str | None:
    """A name that may be a Hub id; a folder of this machine means nothing on the Hub."""
    if not name or Path(name).exists():
        return None
    try:
        validate_repo_id(name)
    except HFValidationError:
        return None
    return name


def as_list(value: str | Sequence[str] | None) -> list[str]:
    """One or several strings, or none."""
    if value is None:
        return []
    return [value] if isinstance(value, str) else [entry for entry in value if entry is not None]


def finite(scores: Mapping[str, float]) -> dict[str, float]:
    """Those that are numbers: the Hub refuses others."""
    return {name: value for name, value in scores.items() if isinstance(value, (int, float)) and math.isfinite(value)}


def named_scores(scores: Mapping[str, float], labels: Sequence[str]) -> list[tuple[str, str, float]]:
    """The metric, a name and the value of each score that a card shows: means, then classes, then what else."""
    wanted = [(kind, f"macro_{kind}", f"Macro {title}") for kind, title in KINDS.items()]
    wanted += [(kind, f"{kind}_{label}", f"{title} ({label})") for label in labels for kind, title in KINDS.items()]
    wanted += [(kind, kind, title) for kind, title in OTHER_SCORES.items()]
    return [(kind, title, scores[name]) for kind, name, title in wanted if name in scores]


def score_table(scores: Mapping[str, float], labels: Sequence[str]) -> str:
    """The classes' scores in one table with their means, and what else there is below it."""

    def row(name: str, keys: list[str]) -> list[str]:
        return [name, *(f"{scores[key]:.4f}" if key in scores else "" for key in keys)]

    classes = [row(label, [f"{kind}_{label}" for kind in KINDS]) for label in labels]
    classes = [line for line in classes if any(line[1:])]
    means = {f"macro_{kind}": f"Macro {title}" for kind, title in KINDS.items()}
    tables = []
    if classes:
        tables.append(table(["class", *KINDS.values()], [*classes, row("macro average", list(means))]))
    others = {**({} if classes else means), **OTHER_SCORES}
    if rest := [row(title, [key]) for key, title in others.items() if key in scores]:
        tables.append(table(["score", "value"], rest))
    return "\n\n".join(tables)


def epochs_table(rows: Sequence[Mapping[str, float]]) -> str:
    """Losses and F1, a row for each evaluation or epoch."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    order = ["epoch", "step", "training loss", "validation loss", "macro F1"]
    columns.sort(key=order.index)
    return table(columns, [[row.get(name) for name in columns] for row in rows]) if rows else ""


def table(header: Sequence[str], rows) -> str:
    """A Markdown table; floats with four digits."""
    lines = [header, ["---"] * len(header), *([cell(value) for value in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else markdown(str(value))


def markdown(text: str) -> str:
    """Text on one line as it is, whatever Markdown and HTML would read in it."""
    text = " ".join(text.split())
    return re.sub(r"([\\`*_\[\]|#~$!])", r"\\\1", escape(text, quote=False))
