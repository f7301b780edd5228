"""Drafts that Inductor does not write: a pattern in a problem's graph is replaced by a kernel of
this project.

Belongs here: patterns on the exported graph, and their kernels. Does not belong here: drafts by
Inductor
(policies/inductor), and checks of drafts (tools/judging).
"""
