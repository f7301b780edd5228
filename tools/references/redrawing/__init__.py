"""Inputs drawn otherwise than the problem draws them: the domain that each input keeps, inputs that never vary drawn
anew, and inputs of which few elements decide. Not here: the element-wise maps of one draw (input_distributions.py).
"""
