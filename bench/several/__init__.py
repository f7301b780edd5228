"""The phases of bench/several_gpus.py, a module each, and what they share.

Belongs here: one measurement on a machine with several GPUs, as a program of its own that writes its results as it
goes. Does not belong here: measurements on one GPU or none (bench/).
"""
