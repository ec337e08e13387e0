"""Classifies a post without its text, by small boosted trees on its position and times."""

from modeling_tempoformer.baselines.methods import PositionAndTime as Method


__all__ = ["Method"]
