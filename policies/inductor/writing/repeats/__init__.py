"""What a network says several times, written once: kernels that differ in numbers alone. How one kernel or launch is
written is `writing/`.
"""
