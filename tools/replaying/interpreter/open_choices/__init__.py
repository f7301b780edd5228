"""Choices which Triton leaves open, drawn from the seed of a call: orders of reductions, scans
and sums, ties, and winners of stores to the same address. Races between programs: races.py and
interleaving.py, one folder above.
"""
