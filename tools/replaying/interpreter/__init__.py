"""Replay on a CPU: kernels under Triton's interpreter, with every access to memory checked."""
