"""Readable words for the kernels of a draft and their variables.

Belongs here: names, and evidence of operators in a kernel's text. Does not belong here: rewriting
of kernels.
"""
