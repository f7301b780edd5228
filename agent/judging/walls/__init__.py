"""Walls of a judge for clients' references: own mounts, processes, user and bounds.

Not here: the sandbox of candidates (tools/sandbox), started inside these walls.
"""
