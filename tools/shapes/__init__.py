"""Shapes and dtypes at each of which a candidate gets a verdict of its own: read from and written into the text of a
problem.
"""
