"""A problem's reference, loaded and prepared: models, weights, inputs and their distributions,
operators and their costs. Only trusted processes import it; no candidate's text comes here.
"""
