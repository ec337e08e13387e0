"""The change from states that a logistic regression predicts from the vectors of posts; it fits in seconds."""

from modeling_tempoformer.baselines.methods import PredictedStates as Method


__all__ = ["Method"]
