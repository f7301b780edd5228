"""Expected outputs of a problem, and what else would be right."""
