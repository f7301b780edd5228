"""Many runs at once: the lanes that they share, the remaining jobs of a batch, and the choice of
its problems.
"""
