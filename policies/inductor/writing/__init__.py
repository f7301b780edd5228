"""Inductor's text becomes a candidate that a person reads: kernels, launches, names, and `ModelNew`.

Everything here is text in and text out, by syntax trees; nothing imports torch or knows how the text was made.
"""
