"""The value of a verdict and of a turn: reward formulas as data, and credit assignment over
turns.
"""
