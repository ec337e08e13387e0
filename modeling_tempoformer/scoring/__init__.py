"""Scoring of corpora that do not fit in memory, on Ray Data. Needs the extra `ray`."""
