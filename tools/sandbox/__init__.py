"""The sandbox's trusted side: zygotes, processes, walls."""

from kernelwright.tools.sandbox.channel import BadMessage, Channel
from kernelwright.tools.sandbox.isolation.layers import available
from kernelwright.tools.sandbox.limits import Limits, ProcessKind
from kernelwright.tools.sandbox.process import Process, ProcessDied, ProcessTimedOut
from kernelwright.tools.sandbox.zygote import Zygote

__all__ = [
    "BadMessage",
    "Channel",
    "Limits",
    "Process",
    "ProcessDied",
    "ProcessKind",
    "ProcessTimedOut",
    "Zygote",
    "available",
]
