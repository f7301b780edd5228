"""`agent tune`, and the state TUNE of a run: which configurations are tried, what was found of each, and what is
written about it.

Belongs here: proposals, pruning, halving, the journal, the tuned file with its table and picture. Does not belong here:
reading and rewriting a file's numbers (tools/tuning), compiling, and the clock (tools/judging, tools/timing).
"""
