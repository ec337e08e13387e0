"""Reads corpora of texts in their own layouts, and dated texts for a training."""
