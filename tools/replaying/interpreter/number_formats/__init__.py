"""Number formats which NumPy lacks, for the interpreter: bfloat16 and two formats of eight bits.

Whole operators (dot, reductions) are defined one folder above.
"""
