"""Kernels from text: the language allowed in a kernel's text, the kernel rebuilt from its text,
and its binary for a target, compiled in a sandbox.

A kernel's text is its only representation. The interpreter on a CPU and the compiler for a GPU
use the same checked syntax tree.
"""
