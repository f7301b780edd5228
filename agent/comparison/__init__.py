"""Trajectories, or batch runs, side by side: values first, then tables.

Everything is read off rows; no text is loaded.
"""
