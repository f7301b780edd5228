"""Rewrites Inductor's text as a readable candidate: kernels, launches, names, and `ModelNew`.

Everything here is text in and text out, by syntax trees; nothing imports torch or knows how the text was made.
"""
