"""How much words changed in meaning: usages, measures, corpora and reports."""
