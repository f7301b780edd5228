"""What a model says. Floor 0: imports nothing of the other packages."""
