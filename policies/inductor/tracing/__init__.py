"""Tracing of a problem's file to a graph of aten operators with symbolic sizes.

Everything that executes the problem's text belongs here: its syntax, symbols for its sizes, loops
over time. Inductor's
processing of the graph does not: that is `lowering/`.
"""
