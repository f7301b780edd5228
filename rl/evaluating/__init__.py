"""How good a policy is: suites, rollouts through the agent's batch, figures with intervals, and a page that shows
them.
"""
