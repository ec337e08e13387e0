"""
Baselines: what a user would try first, since it costs nothing. Each is a module with the same function, `predict`: it
learns from the posts of some timelines, and returns the probabilities (posts, classes) of the posts of others.
"""
