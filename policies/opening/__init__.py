"""Opens the policy that a name stands for."""
