"""The run of one trajectory: its state machine (declared as data), its settings, goals, budgets
and search.

Additions of a batch or of a command to a run belong to other rooms.
"""
