"""Rounds of sampling, judging and training, through the agent's own machine and into its own store."""
