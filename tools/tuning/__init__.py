"""The numbers of a kernel file: which there are, which values are legal, the file rewritten with other values, what the
tracer says such a file launches, and a score from compiling alone.

Belongs here: what is true of a text and of a compilation. Does not belong here: which configuration is tried next, what
was measured before, files and tables (agent/tuning), and anything that runs a kernel (tools/judging, tools/timing).
"""
