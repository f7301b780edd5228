"""Kernelwright's verdicts in TRL: `KernelReward` for single turns, `KernelEnvironment` for a policy that calls a tool,
and `kernel_dataset` with a judge's problems as prompts.
"""

from kernelwright_trl.dataset import kernel_dataset
from kernelwright_trl.environment import KernelEnvironment, environment_factory
from kernelwright_trl.reward import KernelReward

__all__ = ["KernelEnvironment", "KernelReward", "environment_factory", "kernel_dataset"]
