"""The run of one trajectory: the machine declared as data, the run that is held to it, its settings, goals, budgets
and search. What a batch or a command adds to it lies elsewhere.
"""
