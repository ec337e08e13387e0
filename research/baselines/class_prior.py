"""Draws random labels by the class prior (TempoFormer paper, section 5.2)."""

from modeling_tempoformer.baselines.methods import ClassPrior as Method


__all__ = ["Method"]
