"""Classifies a post by a logistic regression of its words and letters, without its timeline."""

from modeling_tempoformer.baselines.methods import WordsAlone as Method


__all__ = ["Method"]
