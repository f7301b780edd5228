"""The agent floor: problems, prompts, the machine that solves them, batches, and views of stored runs. Floor 2: it may
import store, tools and policies.
"""
