"""Code that runs behind the walls, or forks such processes. The trusted side is the folder above."""
