"""Scoring of corpora that do not fit in memory, on Ray. Needs the extra `ray`."""
