"""Kernel evaluation. Floor 0: imports nothing of the other packages."""
