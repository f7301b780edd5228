"""Replay on a GPU: kernels loaded and launched through the driver, memory between margins, and the process side of
the clock.
"""
