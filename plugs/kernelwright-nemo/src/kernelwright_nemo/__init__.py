"""Kernelwright's judge as a NeMo-Gym resources server, and rows for its data sets."""

from kernelwright_nemo.server import KernelResourcesServer, rows

__all__ = ["KernelResourcesServer", "rows"]
