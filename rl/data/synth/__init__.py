"""Programs drawn at random: a reference in KernelBench form and the Triton that answers it, from one plan of
operations.
"""
