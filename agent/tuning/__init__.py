"""`agent tune`, and the state TUNE of a run: searches the numbers of a kernel (block sizes,
warps, stages, precision).

Belongs here: proposals, pruning, halving, the journal, the tuned file with its table and picture.
Does not belong here: reading and rewriting a file's numbers (tools/tuning), compiling, and the
clock (tools/judging, tools/timing).

Order of work: proposals.py proposes configurations; pruning.py compiles them and ranks them by a
model of their cycles; measuring.py times the best on a GPU by successive halving; tuning.py
judges the winner in full and writes it.
"""
