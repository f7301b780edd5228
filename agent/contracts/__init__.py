"""Contracts of kernel files: the judged conditions, as comments for readers and as checks on
every call.

Judging kernels and placing files belong elsewhere.
"""
