"""Repeats stored trajectories and verdicts: replays of stored replies, new verdicts, and
comparison of verdicts.
"""
