"""The mutation score of the judge's draws: random one-line changes of honest kernels, of which as many as possible must
be refused.

    python -m bench.mutations --help
"""
