"""Stores trajectories in a database (floor 1).

`store.database.Store` opens a database; `store.models` defines the tables.
"""
