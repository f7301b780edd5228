"""Trials before a verdict: a reference run in a process that can be killed, its mode, and the sizes
that a candidate accepts.

Expected outputs belong to tools/references.
"""
