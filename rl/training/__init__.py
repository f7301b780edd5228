"""`rl train`: what a log is good for, the training itself, its checkpoints, and what is shown of it."""
