"""Sizes at which a candidate must be right: which numbers of a reference may change, how sizes are drawn, and small
sizes that a CPU can interpret.
"""
