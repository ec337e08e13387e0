"""Metrics, which `evaluate.load` loads by their folders."""
