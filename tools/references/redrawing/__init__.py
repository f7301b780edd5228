"""Draws of inputs beyond elementwise maps: domains to preserve, constant inputs redrawn, inputs
with few decisive elements.

The elementwise maps are in input_distributions.py.
"""
