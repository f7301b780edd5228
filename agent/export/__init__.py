"""Exports of the store in the forms that other programs read. Training with rl reads the store itself."""
