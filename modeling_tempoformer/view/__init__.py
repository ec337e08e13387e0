"""Pages that a person looks at."""
