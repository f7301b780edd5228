"""Files as users keep them, completed to references in KernelBench's form, text to text.

Formats of suites are read in the folder above.
"""
