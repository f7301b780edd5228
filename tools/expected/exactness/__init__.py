"""Values that a candidate may round differently, and those that it may not."""
