"""Provenance of weights: which tensor of a candidate holds which weight of the reference, and what its set-up computes
from them.

Not here: the values themselves (`tools/expected/weights.py`), and whose kernels do the work of a call
(`tools/judging/own_work.py`).
"""
