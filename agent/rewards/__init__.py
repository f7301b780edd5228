"""The value of a verdict: reward formulas as data, the parts of a reward, and their storing."""
