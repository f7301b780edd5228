"""Kernels without a launch: which signatures their text speaks for, and whether they compile with one of them."""
