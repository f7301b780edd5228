"""Compares trajectories or batch runs side by side: values first, then tables.

Only rows are read; no texts are loaded.
"""
