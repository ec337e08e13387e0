"""The base class of baselines that the Trainer trains. Those that it does not train derive from the package's."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from datasets import Dataset
from torch import nn
from transformers import PreTrainedTokenizerBase

from modeling_tempoformer.baselines.methods import Baseline, Methods, UntrainedBaseline
from modeling_tempoformer.posts.arguments import DataTrainingArguments
from modeling_tempoformer.timeline_tempoformer import Timeline

from . import baseline_names, find_baseline, recipe_of


__all__ = ["PAPER_BASELINES", "Baseline", "Prepared", "TrainedBaseline", "UntrainedBaseline", "class_fields"]


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
        Returns the model and its items: all posts of `test`, and the labelled posts of the other parts. `names` are
        the classes in the order of their ids.
        """


def class_fields(names: list[str]) -> dict[str, dict]:
    """Returns the classes as fields of a configuration."""
    return {"id2label": dict(enumerate(names)), "label2id": {name: label for label, name in enumerate(names)}}


PAPER_BASELINES = Methods(tuple(baseline_names()), "research.run_baseline:main", find_baseline, recipe_of)
