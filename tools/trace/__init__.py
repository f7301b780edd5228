"""Traces of candidates as values: steps, launches, tensors and the forms of outputs."""
