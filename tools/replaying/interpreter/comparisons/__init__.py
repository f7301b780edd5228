"""Finds the comparisons of interpreted kernels which depend on loaded data, and records their
outcomes. The room tools/judging decides about an outcome which no draw produced.
"""
