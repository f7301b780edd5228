"""The policies: models (and a compiler) that answer prompts. Floor 0: imports nothing of the other packages."""
