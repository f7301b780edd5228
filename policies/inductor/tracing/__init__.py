"""A problem's file becomes a graph of aten's operators with symbolic sizes.

What executes the problem's text belongs here: reading its syntax, symbols for its sizes, functions of torch that want
numbers or have no kernel of Inductor's written with operators that do, loops over time. What Inductor does with the graph does not: that is
`lowering/`.
"""
