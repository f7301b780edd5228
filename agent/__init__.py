"""The agent floor: problems, prompts, the loop that solves them, batches, and views of stored
runs. Floor 2: may import store, tools and policies.
"""
