"""What a network says several times, written once: kernels that differ in numbers alone, and blocks of forward as
functions. How one kernel or launch is written is `writing/`.
"""
