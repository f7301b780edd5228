"""Simplification of expressions without changing their values; independent of the meaning of
names.
"""
