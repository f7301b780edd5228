"""GRPO on rows sampled earlier: trl's trainer, losses and config, with the stored log-probs as
the old policy.
"""
