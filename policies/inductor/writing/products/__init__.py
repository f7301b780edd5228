"""Kernels that multiply: operands as matrices, and the order of tiles.

Belongs here: what is rewritten in a kernel because it has a `tl.dot`. Does not belong here: tile sizes and
other numbers of a launch (`writing/blocks.py`).
"""
