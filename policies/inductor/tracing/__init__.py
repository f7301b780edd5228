"""A problem's file becomes a graph of aten's operators with symbolic sizes.

What executes the problem's text belongs here: reading its syntax, symbols for its sizes, loops over time, and functions
of torch that want numbers, or for which Inductor has no kernel, written with operators that do. What Inductor does with
the graph does not: that is `lowering/`.
"""
