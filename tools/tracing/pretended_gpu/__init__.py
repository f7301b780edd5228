"""The GPU that is not there: what torch and Triton are told of it while host code is traced, and every private name
that this leans on.
"""
