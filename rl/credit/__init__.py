"""What a verdict and a turn are worth: formulas of the reward as data, and the credit of turns."""
