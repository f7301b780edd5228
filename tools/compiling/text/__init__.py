"""Kernels rebuilt from text: allowed grammar and vocabulary, and the Triton objects made from the
text.
"""
