"""Reproduces the tables of the papers: baselines, cross-validation, and the scripts that run them."""
