"""GRPO on rows that were sampled elsewhere: trl's trainer, its losses and its config; the stored log-probs are the
old policy.
"""
