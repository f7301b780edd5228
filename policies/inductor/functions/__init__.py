"""Functions of torch rewritten with operators that accept symbolic sizes; they replace torch's in
the drafting process.

How these functions are traced belongs to `tracing/`.
"""
