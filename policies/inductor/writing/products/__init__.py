"""Kernels with products: operands as matrices, and the order of tiles.

Belongs here: rewriting of kernels because of a `tl.dot`. Does not belong here: tile sizes and
other launch parameters
(`writing/blocks.py`).
"""
