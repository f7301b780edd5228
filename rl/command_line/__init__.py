"""Commands of `rl`, one module each."""
