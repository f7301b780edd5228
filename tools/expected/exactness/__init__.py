"""Values that a candidate may round otherwise, and those that it may not."""
