"""Tunable numbers of a kernel file: finds them and their legal values, rewrites the file with
other values, reads its launches from the tracer, and scores it by compiling alone.

Belongs here: properties of a text and of a compilation. Does not belong here: the choice of the
next configuration, earlier measurements, files and tables (agent/tuning), and everything that
runs a kernel (tools/judging, tools/timing).
"""
