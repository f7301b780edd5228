"""Optimizes whole models: cuts a model into regions at its own modules, solves each region as a
problem of the store, and packages the kernels that are right (and on a GPU also faster).

Solving single problems is in agent/solve, packages in agent/exporting.
"""
