"""Families of generated programs, a module each. Their shared parts lie in `blocks/`."""
