"""Primitives of a GPU for replays and clocks: graphs, kernels, memory that stays, stopwatches."""
