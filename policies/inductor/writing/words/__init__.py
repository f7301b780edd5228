"""What the kernels of a draft and their names are called, in words that a person reads.

Belongs here: names, and which operators a kernel's text shows. Does not belong here: how a kernel is rewritten.
"""
