"""What is true of a kernel. Floor 0: imports nothing of the other packages."""
