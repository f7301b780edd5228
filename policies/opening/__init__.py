"""Opens the policy a name stands for."""
