"""Posts that keep arriving, at several processes: one memory for all of them, which outlives each."""
