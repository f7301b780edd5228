"""Rounds of sampling, judging and training, through the agent's own batch runner and into its
store.
"""
