"""Base classes of baselines: their options, and how they prepare for the Trainer or predict without it."""

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
    """The baseline that `research.run_baseline` runs, and its encoder or language model."""

    # The kind of model that `--model_name_or_path` must name.
    reads: ClassVar[Literal["encoder", "language model"] | None] = "encoder"
    # Options that the method does not support.
    refused: ClassVar[tuple[str, ...]] = ("config_name", "tokenizer_name", "view", "seeds", "precision", "recall")
    # True if the model is a class of Transformers, which loads without this package.
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
    """A baseline that the Trainer does not train."""

    refused: ClassVar[tuple[str, ...]] = (*Baseline.refused, "config_overrides", "calibrate")

    @abstractmethod
    def predict(
        self, timelines: dict[str, list[Timeline]], names: list[str], data: DataTrainingArguments, seed: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """
        Predicts the posts of `timelines["test"]`, given those of the other parts. `names` are the classes in the order
        of their ids. Returns class ids (posts,) in the order of the timelines, and probabilities (posts, classes).
        """


@dataclass
class Prepared:
    """The model and the data for the Trainer. `items` has a data set for each part, as [`attach_logits`] takes it."""

    model: nn.Module
    items: dict[str, Dataset]
    collator: Callable
    tokenizer: PreTrainedTokenizerBase | None = None
    # The loss, if the model does not compute it.
    compute_loss: Callable | None = None


@dataclass(kw_only=True)
class TrainedBaseline(Baseline, ABC):
    """A baseline that the Trainer trains."""

    @abstractmethod
    def prepare(self, timelines: dict[str, list[Timeline]], names: list[str], data: DataTrainingArguments) -> Prepared:
        """
        Returns the model and its items: all posts of `test`, and the labelled posts of the other parts. The arguments
        are those of [`UntrainedBaseline.predict`].
        """


def learned_posts(timelines: dict[str, list[Timeline]]) -> list[Timeline]:
    """Returns the training and validation timelines. Methods that tune nothing learn from both."""
    return [timeline for name in ("train", "validation") for timeline in timelines.get(name, ())]


def class_fields(names: list[str]) -> dict[str, dict]:
    """Returns the classes as fields of a configuration."""
    return {"id2label": dict(enumerate(names)), "label2id": {name: label for label, name in enumerate(names)}}


@dataclass
class MethodArgument:
    """The option that decides which class holds the other options."""

    method: str | None = None


def with_own_recipe(arguments: list[str]) -> tuple[type[Baseline], list[str]]:
    """Returns the class of the `--method`, or [`Baseline`], and the arguments, with the method's recipe by default."""
    (choice,) = parse([MethodArgument], [word for word in arguments if word not in ("-h", "--help")], only_these=False)
    if choice.method is None:
        return Baseline, arguments
    recipe = [] if split_recipes(arguments)[0] else [recipe_of(choice.method)]
    return find_baseline(choice.method), [*recipe, *arguments]
