"""Kernels from text: what a kernel's text may say, a kernel rebuilt from it, and its binary for a target, made in a
sandbox.

A kernel's text is the only representation of it. What is interpreted on a CPU and what is compiled for a GPU are made
from the same checked syntax tree.
"""
