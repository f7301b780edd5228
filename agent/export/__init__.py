"""Exports stored data in formats of other programs.

Training with rl reads the store directly.
"""
