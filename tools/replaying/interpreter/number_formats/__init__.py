"""Number formats that NumPy lacks, as the interpreter computes in them: bfloat16 and the two of eight bits.

How whole operators compute stays one folder above.
"""
