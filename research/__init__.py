"""Reproduces the tables of the papers: other methods, cross-validation, and the scripts that run them."""
