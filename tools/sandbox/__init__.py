"""The sandbox's trusted side: zygotes, processes, walls."""

from tools.sandbox.channel import BadMessage, Channel
from tools.sandbox.isolation import Kind, Limits, available
from tools.sandbox.process import Process, ProcessDied, ProcessTimedOut
from tools.sandbox.zygote import Zygote

__all__ = [
    "BadMessage",
    "Channel",
    "Kind",
    "Limits",
    "Process",
    "ProcessDied",
    "ProcessTimedOut",
    "Zygote",
    "available",
]
