"""A judge's problems as a verifiers taskset: `vf-eval kernelwright-verifiers`, `vf-validate kernelwright-verifiers`."""

from kernelwright_verifiers.taskset import KernelTask, KernelTaskset

__all__ = ["KernelTask", "KernelTaskset"]
