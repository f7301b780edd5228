"""Numbers of tensors: bits, pieces, tolerances and seeds."""
