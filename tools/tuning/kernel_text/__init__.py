"""Finds the numbers of a kernel file in its syntax tree, and writes them back without changing
the remaining text.
"""
