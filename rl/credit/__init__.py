"""The value of a verdict and of a turn: formulas of the reward as data, and the credit of turns."""
