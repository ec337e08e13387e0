"""Makes the default for the library's own `Trainer`: the posts in parts, the model, its rows, and settings."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import yaml
from datasets import Dataset
from transformers import AutoTokenizer, PreTrainedTokenizerBase, TrainingArguments

from ..common.files import data_folder
from ..modeling_post_tempoformer import PostTempoFormerForStreamClassification
from ..posts.model_fields import fields_of_posts
from ..posts.rows import to_rows
from ..posts.splits import hold_out, split_timelines
from ..posts.tables import load_table
from ..posts.timelines import label_names, to_timelines
from ..timeline_tempoformer import Timeline
from .frozen_encoder import embed_rows, freeze_encoder
from .word_fitting import fit_words


LONGEST = 128  # tokens of a post


@dataclass
class Parts:
    """
    The posts of a file, in two parts.

    Args:
        train (`list[Timeline]`): The timelines to learn from, each held out from one member of the model.
        test (`list[Timeline]`): The timelines to test on.
        names (`list[str]`): The classes, in the order of their ids.
    """

    train: list[Timeline]
    test: list[Timeline]
    names: list[str]


def load_parts(
    path: str, columns: Mapping[str, str] | None = None, test_fraction: float = 0.2, seed: int = 42
) -> Parts:
    """
    Reads and splits a table of posts as `tempoformer train` does.

    Args:
        path (`str`): The table: CSV, TSV, JSON lines or Parquet.
        columns (`Mapping[str, str]`, *optional*): The names of columns by what they are, where they have not the usual
            names: `{"timeline": "user"}`.
        test_fraction (`float`, *optional*, defaults to 0.2): The share of the timelines that are kept for the test.
        seed (`int`, *optional*, defaults to 42): Seed of the split and of the folds of the model's five members.

    Returns:
        [`Parts`]. Raises the errors of [`load_table`], [`to_timelines`] and [`split_timelines`].
    """
    table = load_table(path)
    names = label_names(table, (columns or {}).get("label", "label"))
    train, test = split_timelines(to_timelines(table, names, columns), test_fraction, seed)
    return Parts(hold_out(train, 5, seed), test, names)


def build_default(
    encoder: str, parts: Parts, **settings: Any
) -> tuple[PostTempoFormerForStreamClassification, PreTrainedTokenizerBase]:
    """
    Builds the default over a frozen encoder, with the fields that the training posts decide ([`fields_of_posts`]), and
    loads its tokenizer. Call `transformers.set_seed` before: new layers are drawn at random.

    Args:
        encoder (`str`): The encoder: a folder or a Hub id.
        parts ([`Parts`]): The posts.
        settings: Other fields of the configuration, such as `window`.
    """
    fields = fields_of_posts(parts.train, parts.names)
    model = PostTempoFormerForStreamClassification.from_encoder_pretrained(encoder, **{**fields, **settings})
    freeze_encoder(model)
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    tokenizer.model_max_length = min(LONGEST, tokenizer.model_max_length, model.max_tokens)
    return model, tokenizer


def embed_parts(
    parts: Parts, model: PostTempoFormerForStreamClassification, tokenizer: PreTrainedTokenizerBase
) -> dict[str, Dataset]:
    """
    Makes the rows of the training and test posts, a row for each post, with the posts' vectors; fits the words of the
    model before ([`fit_words`]), since a vector forgets words.

    Args:
        parts ([`Parts`]): The posts.
        model (`PostTempoFormerForStreamClassification`): The model of [`build_default`].
        tokenizer (`PreTrainedTokenizerBase`): Its tokenizer.
    """
    reads = {"window": model.config.window, "targets_per_row": 1, "reads_speakers": model.config.reads_speakers}
    rows = {
        "train": to_rows(parts.train, tokenizer, only_labelled=True, **reads),
        "test": to_rows(parts.test, tokenizer, **reads),
    }
    fit_words(model, rows["train"], tokenizer)
    return embed_rows(rows, model, tokenizer)


def default_settings(num_rows: int) -> dict[str, Any]:
    """
    Returns the settings of `configuration/default.yaml` as arguments of `TrainingArguments`, with as many epochs as
    its least number of steps takes.

    Args:
        num_rows (`int`): The number of training rows.
    """
    recipe = yaml.safe_load((data_folder("configuration") / "default.yaml").read_text(encoding="utf-8"))
    names = {field.name for field in fields(TrainingArguments)}
    settings = {name: value for name, value in recipe.items() if name in names}
    steps = math.ceil(num_rows / recipe["per_device_train_batch_size"])
    settings["num_train_epochs"] = max(recipe["num_train_epochs"], math.ceil(recipe["min_steps"] / steps))
    # Without the first, times would be lost.
    return settings | {"remove_unused_columns": False, "report_to": "none"}
