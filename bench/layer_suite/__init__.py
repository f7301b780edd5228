"""Real layers and blocks of installed packages, drafted, judged and timed.

    PYTHONPATH=src:. python -m bench.layer_suite [--device cuda:0] [--half dev|kept] [--modes strict,share]
        [--only NAME] [--json] [--out bench/results/layer_suite.md]

Belongs here: the layers, the choice of halves, their drafting, judging and timing. Does not belong here: problems that
are written by hand.
"""
