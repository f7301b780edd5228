"""The capacity needed by a training (`--plan`): memory of each GPU, GPUs by role, seconds of a
step by phase. Everything is computed from a model's config; no weights are read.
"""
