"""Evaluation of a policy: suites, rollouts through the agent's batch, figures with confidence
intervals, and a report page.
"""
