"""`rl train`: selection of usable turns of a log, the training, its checkpoints and its report."""
