"""What a baseline is: its options, and how it is made ready for the Trainer or predicts without one."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
from datasets import Dataset
from torch import nn
from transformers import PreTrainedTokenizerBase

from modeling_tempoformer.data.arguments import DataTrainingArguments
from modeling_tempoformer.timeline_tempoformer import Timeline
from modeling_tempoformer.training.arguments import ModelArguments
from modeling_tempoformer.training.recipes import parse, split_recipes

from . import find_baseline, recipe_of


@dataclass(kw_only=True)
class Baseline(ModelArguments):
    """Which baseline `research.run_baseline` runs, and on which encoder or language model."""

    # What `--model_name_or_path` must name.
    reads: ClassVar[Literal["encoder", "language model"] | None] = "encoder"
    # Options that the method does not take.
    refused: ClassVar[tuple[str, ...]] = ("config_name", "tokenizer_name", "view")
    # Whether the model is one of Transformers, which loads without this package.
    is_stock: ClassVar[bool] = False

    method: str = field(metadata={"help": "The baseline."})

    def check_source(self):
        for name in self.refused:
            if getattr(self, name) not in (None, False):
                raise ValueError(f"--{name} cannot be given with --method {self.method}.")
        if self.reads is not None and self.model_name_or_path is None:
            raise ValueError(f"--method {self.method} needs --model_name_or_path, the {self.reads}.")


@dataclass(kw_only=True)
class UntrainedBaseline(Baseline, ABC):
    """A baseline without a training."""

    refused: ClassVar[tuple[str, ...]] = (*Baseline.refused, "config_overrides", "calibrate")

    @abstractmethod
    def predict(
        self, timelines: dict[str, list[Timeline]], names: list[str], data: DataTrainingArguments, seed: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """
        Predicts the posts of `timelines["test"]`, with those of `train` as material; `names` are the classes in the
        order of their ids. Returns the class id of each post (posts,), in the order of the timelines, and the
        probability of each class (posts, classes).
        """


@dataclass
class Prepared:
    """A baseline's model and data, ready for the Trainer; `items` of each part, as [`attach_logits`] takes them."""

    model: nn.Module
    items: dict[str, Dataset]
    collator: Callable
    tokenizer: PreTrainedTokenizerBase | None = None
    # The loss, where the model does not compute it.
    compute_loss: Callable | None = None


@dataclass(kw_only=True)
class TrainedBaseline(Baseline, ABC):
    """A baseline that the Trainer trains."""

    @abstractmethod
    def prepare(self, timelines: dict[str, list[Timeline]], names: list[str], data: DataTrainingArguments) -> Prepared:
        """
        Makes the model, and the items that it learns from and predicts: all posts of `test`, and the labelled ones of
        the other parts. Arguments as of [`UntrainedBaseline.predict`].
        """


def learned_posts(timelines: dict[str, list[Timeline]]) -> list[Timeline]:
    """The timelines of the training and the validation part: what a method learns from that chooses nothing."""
    return [timeline for name in ("train", "validation") for timeline in timelines.get(name, ())]


def class_fields(names: list[str]) -> dict[str, dict]:
    """The classes as fields of a configuration."""
    return {"id2label": dict(enumerate(names)), "label2id": {name: label for label, name in enumerate(names)}}


@dataclass
class MethodArgument:
    """The option that says which class has the others."""

    method: str | None = None


def with_own_recipe(arguments: list[str]) -> tuple[type[Baseline], list[str]]:
    """The class of the `--method` ([`Baseline`] without one), and the arguments, after its recipe or one of theirs."""
    (found,) = parse([MethodArgument], [word for word in arguments if word not in ("-h", "--help")], only_these=False)
    if found.method is None:
        return Baseline, arguments
    recipe = [] if split_recipes(arguments)[0] else [recipe_of(found.method)]
    return find_baseline(found.method), [*recipe, *arguments]
