"""Boosted trees on the vectors of a post and the post before it, and on position and time; they fit in seconds."""

from modeling_tempoformer.baselines.methods import BoostedTrees as Method


__all__ = ["Method"]
