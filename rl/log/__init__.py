"""Training rows from stored turns, the reasons against unusable turns, and statistics of a
database.
"""
