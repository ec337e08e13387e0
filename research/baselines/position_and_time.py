"""Classifies a post without its text, by small boosted trees on its position and times."""

import numpy as np

from modeling_tempoformer.data.arguments import DataTrainingArguments
from modeling_tempoformer.evaluation.rivals import position_and_time
from modeling_tempoformer.timeline_tempoformer import Timeline

from .base import UntrainedBaseline, learned_posts


class Method(UntrainedBaseline):
    """Predicts by [`position_and_time`], which the results of every run report."""

    reads = None

    def predict(
        self, timelines: dict[str, list[Timeline]], names: list[str], data: DataTrainingArguments, seed: int
    ) -> tuple[np.ndarray, np.ndarray]:
        probabilities, _ = position_and_time(learned_posts(timelines), timelines["test"], len(names))
        return probabilities.argmax(-1), probabilities
