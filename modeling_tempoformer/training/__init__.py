"""The Trainers, their arguments and recipes, resuming and cross-validation."""
