"""vLLM: its engine in this process, its server, and what its workers need while a policy is trained."""
