"""Attention in a graph: found where it is written out, joined to one operator, and its operands read in place."""
