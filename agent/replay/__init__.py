"""Trajectories and verdicts once more: replays of stored replies, verdicts made anew, and what differs between two
verdicts.
"""
