"""Lowering of a graph to Inductor's text: Inductor's passes and code generation, with own
products and convolutions.

Rewriting of that text does not belong here, but to `writing/`.
"""
