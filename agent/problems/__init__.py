"""Problems by the names that people give them: the catalogue that ships, files of a user's own, KernelBench and
TritonBench. What a problem is lies in `tools/problem.py`.
"""
