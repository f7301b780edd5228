"""Poses the gradients of a problem as a problem of their own, and joins kernels of both.

Solving belongs to agent/solve, packages to agent/exporting.
"""
