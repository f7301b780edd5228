"""The options for a policy and its sampling, and the check of its server before a run."""
