"""The graph becomes Inductor's text: its own passes and code generation, and lowerings for what it would leave to a
library (products and convolutions).

What rewrites that text does not belong here: that is `writing/`.
"""
