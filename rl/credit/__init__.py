"""Credit assignment over the turns of a trajectory, and rewards explained in words."""
