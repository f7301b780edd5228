"""Where problems come from besides the catalogue: files, KernelBench, TritonBench.

Nothing of a suite is kept in this repository.
"""
