"""Serves a model: scores a corpus on Ray (`scorer`), posts as they arrive (`live_classifier`), an app (`space`)."""
