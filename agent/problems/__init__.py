"""Finds problems by name: the shipped catalogue, user files, KernelBench and TritonBench.
`tools/problem.py` defines the problem itself.
"""
