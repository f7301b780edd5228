"""The small policy that ships: its model in plain torch, its weights in eight bits. No GPU, no key, no download."""
