"""Drafts that a compiler does not make: a pattern of a problem's graph is found and written as one kernel of our own.

Belongs here: patterns on the exported graph, and the kernels that take their place. Does not belong here: what
Inductor drafts (policies/inductor), and whether a draft is right (tools/judging).
"""
