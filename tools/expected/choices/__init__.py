"""Handles choices of a reference among values that are equal, or equal within noise.

Tolerances of values are compared in tools/comparing.
"""
