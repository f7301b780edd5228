"""What no CPU can interpret. It is no fault of the candidate, and is answered as a value of its own."""

from __future__ import annotations


class NotInterpreted(BaseException):
    """A kernel asks for what Triton's interpreter does not have. Raised in the process that interprets.

    Not an Exception: a device function's wrapper turns those into errors of the kernel.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class NeedsGpu(Exception):
    """A candidate that can only be replayed on a GPU. Raised on the judge's side; `reason` is one line."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"needs a GPU: {reason}")
        self.reason = reason
