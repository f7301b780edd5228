"""Errors for kernels which no CPU can interpret; they are no fault of the candidate."""

from __future__ import annotations


class NotInterpreted(BaseException):
    """Raised in the interpreting process if a kernel uses an operation without interpretation.

    Not an Exception: a device function's wrapper turns exceptions into errors of the kernel.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class NeedsGpu(Exception):
    """Raised on the judge's side for a candidate which can be replayed only on a GPU; `reason` is
    a single line.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"needs a GPU: {reason}")
        self.reason = reason
