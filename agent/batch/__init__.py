"""Many runs at once: the lanes that they share, what a batch still has to do, and which problems it is about."""
