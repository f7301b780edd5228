"""vLLM: its engine in this process, its server, and the extension of its workers during training."""
