"""The Trainers and their arguments, what grows after the gradients, resuming, and what the stock Trainer needs."""
