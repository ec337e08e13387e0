"""Baselines as methods, which a comparison trains and tests. Other methods derive from the same classes."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from transformers import AutoTokenizer, PreTrainedTokenizerBase
from transformers.utils import logging

from ..common.command_line import parse, split_recipes
from ..evaluation.predictions import all_labels
from ..modeling_post_tempoformer import PostTempoFormerForStreamClassification
from ..posts.arguments import DataTrainingArguments
from ..posts.states import choose_states
from ..timeline_tempoformer import Timeline, tokenize_posts
from ..training.arguments import ModelArguments
from ..training.frozen_encoder import embed
from . import class_prior, position_and_time, predicted_states, trees, words


logger = logging.get_logger(__name__)

DEFAULT_LENGTH = 128  # tokens


@dataclass(kw_only=True)
class Baseline(ModelArguments):
    """A method that the default is compared with, and its encoder or language model."""

    # The kind of model that `--model_name_or_path` must name.
    reads: ClassVar[Literal["encoder", "language model"] | None] = "encoder"
    # Options that the method does not support.
    refused: ClassVar[tuple[str, ...]] = ("config_name", "tokenizer_name", "view", "alarm")
    # True if the model is a class of Transformers, which loads without this package.
    is_stock: ClassVar[bool] = False
    # The option without which the method does nothing.
    needs: ClassVar[Literal["do_train", "do_predict"]] = "do_train"

    method: str = field(metadata={"help": "The baseline."})

    def check_source(self):
        for name in self.refused:
            if getattr(self, name) not in (None, False):
                raise ValueError(f"--{name} cannot be given with --method {self.method}.")
        if self.reads is not None and self.model_name_or_path is None:
            raise ValueError(f"--method {self.method} needs --model_name_or_path, the {self.reads}.")

    @classmethod
    def check_posts(cls, timelines: Sequence[Timeline]):
        """Raises a `ValueError` for timelines that lack what the method learns from."""


@dataclass(kw_only=True)
class UntrainedBaseline(Baseline, ABC):
    """A method that the Trainer does not train."""

    needs: ClassVar[Literal["do_train", "do_predict"]] = "do_predict"
    refused: ClassVar[tuple[str, ...]] = (*Baseline.refused, "config_overrides", "calibrate")

    @abstractmethod
    def predict(
        self, timelines: dict[str, list[Timeline]], names: list[str], data: DataTrainingArguments, seed: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """
        Predicts the posts of `timelines["test"]`, given the other parts. `names` are the classes in the order
        of their ids. Returns class ids (posts,) in the order of the timelines, and probabilities (posts, classes).
        """


class Methods(NamedTuple):
    """
    Methods that the default is compared with.

    Attributes:
        names (`tuple[str, ...]`): Their names.
        program (`str`): The function that runs one of them, as `commands.fold` takes it.
        find (`Callable[[str], type[Baseline]]`): Returns the class of a method. Raises a `ValueError` for no method.
        recipe_of (`Callable[[str], str]`, *optional*): Returns the path of a method's recipe, which names it.
    """

    names: tuple[str, ...]
    program: str
    find: Callable[[str], type[Baseline]]
    recipe_of: Callable[[str], str] | None = None

    def add(self, method: str, arguments: list[str]) -> list[str]:
        """Returns a command line with a method, or the method's own recipe, put after the recipes."""
        recipes, options = split_recipes(arguments)
        named = ["--method", method] if self.recipe_of is None else [self.recipe_of(method)]
        return [*recipes, *named, *options]

    def read(self, arguments: list[str]) -> tuple[type[Baseline], list[str]]:
        """Returns the class of `--method`, or [`Baseline`], and the arguments, by default with the method's recipe."""
        options = [word for word in arguments if word not in ("-h", "--help")]
        (choice,) = parse([MethodArgument], options, only_these=False)
        if choice.method is None:
            return Baseline, arguments
        if self.recipe_of is not None and not split_recipes(arguments)[0]:
            arguments = [self.recipe_of(choice.method), *arguments]
        return self.find(choice.method), arguments


@dataclass
class MethodArgument:
    """The option that decides which class holds the other options."""

    method: str | None = None


def learned_posts(timelines: dict[str, list[Timeline]]) -> list[Timeline]:
    """Returns the training and validation timelines. Methods that tune nothing learn from both."""
    return [timeline for name in ("train", "validation") for timeline in timelines.get(name, ())]


def load_embedder(
    model_name_or_path: str, download_settings: dict[str, Any]
) -> tuple[PostTempoFormerForStreamClassification, PreTrainedTokenizerBase]:
    """Returns a model that embeds posts as the mean over their tokens, [CLS] and [SEP] included, and its tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(model_name_or_path, **download_settings)
    # Weights that the checkpoint lacks, such as an unused pooler, are drawn at random. A fixed seed makes the cached
    # vectors match, and the fork leaves the caller's random state unchanged.
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = PostTempoFormerForStreamClassification.from_encoder_pretrained(
            model_name_or_path, post_pooling="mean", **download_settings
        )
    tokenizer.model_max_length = min(tokenizer.model_max_length, model.max_tokens)
    return model.to("cuda" if torch.cuda.is_available() else "cpu"), tokenizer


class ClassPrior(UntrainedBaseline):
    """Draws a class for each post by the shares of the classes among the labelled training posts."""

    reads = None

    def predict(
        self, timelines: dict[str, list[Timeline]], names: list[str], data: DataTrainingArguments, seed: int
    ) -> tuple[np.ndarray, np.ndarray]:
        probabilities = class_prior.predict(timelines["train"], timelines["test"], len(names))
        drawn = np.random.default_rng(seed).choice(len(names), size=len(probabilities), p=probabilities[0])
        return drawn, probabilities


class PositionAndTime(UntrainedBaseline):
    """Predicts by [`position_and_time.predict`], which the results of every run report."""

    reads = None

    def predict(
        self, timelines: dict[str, list[Timeline]], names: list[str], data: DataTrainingArguments, seed: int
    ) -> tuple[np.ndarray, np.ndarray]:
        probabilities = position_and_time.predict(learned_posts(timelines), timelines["test"], len(names))
        return probabilities.argmax(-1), probabilities


class WordsAlone(UntrainedBaseline):
    """Predicts by [`words.predict`], which the results of every run report."""

    reads = None

    def predict(
        self, timelines: dict[str, list[Timeline]], names: list[str], data: DataTrainingArguments, seed: int
    ) -> tuple[np.ndarray, np.ndarray]:
        probabilities = words.predict(learned_posts(timelines), timelines["test"], len(names))
        return probabilities.argmax(-1), probabilities


class VectorBaseline(UntrainedBaseline):
    """A method that reads the encoder's vectors of posts."""

    def embed_parts(
        self, learned: list[Timeline], test: list[Timeline], data: DataTrainingArguments
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the vectors (posts, hidden) of the posts of `learned` and of `test`."""
        model, tokenizer = load_embedder(self.model_name_or_path, self.download_settings)
        length = min(data.max_seq_length or DEFAULT_LENGTH, tokenizer.model_max_length)
        # Embedded together, so that every split of the same posts uses the same entry of the cache of vectors.
        texts = list(chain.from_iterable(timeline.texts for timeline in (*learned, *test)))
        columns, cut = tokenize_posts(tokenizer, texts, length)
        if cut:
            logger.warning(f"Truncated {cut} posts to {length} tokens.")
        posts = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        train_vectors, test_vectors = np.split(embed(posts, model, tokenizer), [len(all_labels(learned))])
        return train_vectors, test_vectors


class BoostedTrees(VectorBaseline):
    """Predicts by [`trees.predict`], which the results of every training over a frozen encoder report."""

    def predict(
        self, timelines: dict[str, list[Timeline]], names: list[str], data: DataTrainingArguments, seed: int
    ) -> tuple[np.ndarray, np.ndarray]:
        learned, test = learned_posts(timelines), timelines["test"]
        probabilities = trees.predict(learned, test, len(names), self.embed_parts(learned, test, data), seed)
        return probabilities.argmax(-1), probabilities


class PredictedStates(VectorBaseline):
    """Predicts by [`predicted_states.predict`], which the results of every training of a model with states report."""

    @classmethod
    def check_posts(cls, timelines: Sequence[Timeline]):
        if choose_states(timelines) is None:
            raise ValueError("--method predicted_states needs posts with states, and these have none: leave it out.")

    def predict(
        self, timelines: dict[str, list[Timeline]], names: list[str], data: DataTrainingArguments, seed: int
    ) -> tuple[np.ndarray, np.ndarray]:
        learned, test = learned_posts(timelines), timelines["test"]
        self.check_posts(learned)
        vectors = self.embed_parts(learned, test, data)
        probabilities = predicted_states.predict(learned, test, len(names), vectors, choose_states(learned))
        return probabilities.argmax(-1), probabilities


KINDS = {
    "class_prior": ClassPrior,
    "position_and_time": PositionAndTime,
    "words": WordsAlone,
    "trees": BoostedTrees,
    "predicted_states": PredictedStates,
}


def find_baseline(name: str) -> type[Baseline]:
    """Returns the class of a baseline. Raises a `ValueError` for an unknown name."""
    if name not in KINDS:
        raise ValueError(f"--method {name} is none of the baselines: {', '.join(KINDS)}.")
    return KINDS[name]


BASELINES = Methods(tuple(KINDS), "modeling_tempoformer.commands.baseline:main", find_baseline)
