"""What the judge holds and decides, in the trusted process only: input distributions, sizes, expected outputs,
comparison, own work and the verdict.

sizes.py and size_*.py    at which sizes a candidate must be right: drawn anew for every verdict, the author's own,
those that reach another kernel

A candidate's code never runs here. The reference's own text does: it is the user's, and trusted. Running kernels is the
replaying room's work, reading host code the tracing room's, and the clock the timing room's.
"""
