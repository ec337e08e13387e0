"""Serves a model: to a corpus on Ray (`scorer`), posts that keep arriving (`live_classifier`), a browser (`space`)."""
