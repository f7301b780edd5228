"""What the sharded trainings of bench.sharded_training are made of: a model, its corpus and its log."""
