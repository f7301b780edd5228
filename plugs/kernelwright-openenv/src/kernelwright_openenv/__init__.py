"""Kernelwright's judge as an OpenEnv environment."""

from kernelwright_openenv.client import KernelEnv
from kernelwright_openenv.models import KernelAction, KernelObservation

__all__ = ["KernelAction", "KernelEnv", "KernelObservation"]
