"""Draws random labels by the class prior (TempoFormer paper, section 5.2)."""

import numpy as np

from modeling_tempoformer.data.arguments import DataTrainingArguments
from modeling_tempoformer.evaluation.predictions import all_labels
from modeling_tempoformer.timeline_tempoformer import Timeline

from .base import UntrainedBaseline


class Method(UntrainedBaseline):
    """Draws a class for each post by the shares of the classes among the labelled training posts."""

    reads = None

    def predict(
        self, timelines: dict[str, list[Timeline]], names: list[str], data: DataTrainingArguments, seed: int
    ) -> tuple[np.ndarray, np.ndarray]:
        labels = all_labels(timelines["train"])
        labels = labels[labels >= 0]
        shares = np.bincount(labels, minlength=len(names)) / len(labels)
        count = len(all_labels(timelines["test"]))
        drawn = np.random.default_rng(seed).choice(len(names), size=count, p=shares)
        return drawn, np.tile(shares, (count, 1))
