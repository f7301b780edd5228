"""Cleaning of rows for training: normalised, deduplicated, free of benchmark problems, labelled
by the tools.
"""
