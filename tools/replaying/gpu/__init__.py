"""Replays traces on a GPU: loads and launches kernels through the driver, allocates memory between
margins, times calls."""
