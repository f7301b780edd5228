"""Tensors that are not floating-point numbers of the GPU's memory when a module is traced: numbers that are known
before anything runs, and complex numbers. How sizes are traced is `tracing/`.
"""
