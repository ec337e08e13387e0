"""Scores posts as they arrive: by themselves (`stepping`), in a service (`server`), and corpora on Ray (`scorer`)."""
