"""Searches, after all ordinary draws passed, for outcomes of the kernels' comparisons that no draw
produced.

Outcomes are recorded in tools/replaying/interpreter/comparisons.
"""
