"""Repetitions in a network, written once: kernels that differ in numbers only, and repeated
blocks as functions.

The text of a single kernel or launch belongs to `writing/`.
"""
