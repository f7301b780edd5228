"""Special tensors during tracing: numbers known before execution, and complex numbers. Sizes
belong to `tracing/`.
"""
