"""The commands of `rl`, a module each."""
