"""Expected outputs of a problem, and other correct answers."""
