"""Lexical semantic change: usages of words, measures of change, corpora and reports."""
