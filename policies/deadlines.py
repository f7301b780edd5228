"""Deadlines of requests: the time at which nobody waits for an answer any more."""

from __future__ import annotations

import time
from collections.abc import Sequence

from kernelwright.policies.base import PolicyError, Request, Trouble


class DeadlineReached(PolicyError):
    """The deadline of a request came before its answer. It is not worth asking again; nothing is wrong with the
    policy.
    """

    def __init__(self) -> None:
        super().__init__("no answer came before the time limit", Trouble.TIMEOUT)


def latest_deadline(requests: Sequence[Request]) -> float | None:
    """Returns the latest deadline of the requests, on the monotonic clock; None if a request has
    no deadline.
    """
    deadlines = [request.deadline for request in requests]
    waiting = [deadline for deadline in deadlines if deadline is not None]
    return max(waiting) if waiting and len(waiting) == len(deadlines) else None


def seconds_until(deadline: float | None) -> float | None:
    """Returns the seconds until a deadline, at least 0; None without a deadline."""
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def seconds_within(deadline: float | None, seconds: float) -> float:
    """Returns `seconds`, or the seconds until a deadline if these are fewer: 0 after it."""
    remaining = seconds_until(deadline)
    return seconds if remaining is None else min(seconds, remaining)


def check_deadline(deadline: float | None) -> None:
    """Raises DeadlineReached at the deadline and after it."""
    if deadline is not None and time.monotonic() >= deadline:
        raise DeadlineReached
