"""What Triton leaves open, chosen from the seed of a call: orders of reductions, scans and sums, ties, and winners of
several stores. Races between programs lie one folder up (races.py, interleaving.py).
"""
