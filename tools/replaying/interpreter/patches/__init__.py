"""Changes of Triton's interpreter, made once per process (installation.py): repairs of wrong
results, guarded memory operations, functions that the interpreter lacks, and speedups with the
same results.
"""
