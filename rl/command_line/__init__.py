"""The commands of `rl`, one module for each."""
