"""Cuts a turn that is under way when the time limit of its run is reached.

The policy has the limit as the deadline of its request. The tools have a short grace beyond it: between two steps
the verdict is ended, and within a step the candidate's processes have no more time than that.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from kernelwright.agent.loop.stopping import Budgets
from kernelwright.tools.options import Options
from kernelwright.tools.report import InfrastructureError, Report
from kernelwright.tools.verdict_cache import UNCACHED_FAULTS

GRACE_SECONDS = 5.0
"""Seconds that a verdict under way has beyond the time limit."""
MIN_STEP_SECONDS = 1.0
"""Least time limit of a step of the tools."""


class TimeLimitReached(InfrastructureError):
    """The time limit of the run came before the end of a step of the tools."""


def time_limit_seconds(budgets: Budgets, earlier_seconds: float, solved: bool) -> float | None:
    """Returns the seconds from the beginning of this sitting to the time limit of the run; None where it has none.

    A run that has used up a limit gets it anew when the same command goes on with it.
    earlier_seconds: of earlier sittings. solved: whether there is a correct kernel.
    """
    minutes = [budgets.minutes] if solved else [budgets.minutes, budgets.minutes_unsolved]
    limits = [60.0 * limit for limit in minutes if limit is not None]
    return min(
        (limit - earlier_seconds if earlier_seconds < limit else limit for limit in limits),
        default=None,
    )


def options_until(options: Options, deadline: float) -> Options:
    """The options of a verdict with time limits that end it soon after the deadline (of the monotonic clock)."""
    seconds = max(MIN_STEP_SECONDS, deadline + GRACE_SECONDS - time.monotonic())
    limited: Options = options.with_(
        compile_seconds=min(options.compile_seconds, seconds),
        seconds=min(options.seconds, seconds),
        lease_seconds=min(options.lease_seconds, seconds),
    )
    return limited


def judged_until(
    deadline: float | None, options: Options, judge: Callable[[Options, Callable[[str], None]], Report],
    say: Callable[[str], None],
) -> Report:  # fmt: skip
    """Returns the report of `judge`, which is given the options and what it tells its steps to.

    Raises TimeLimitReached where the deadline and its grace end the verdict; a fault that the haste may have caused is
    no verdict either.
    """
    if deadline is None:
        return judge(options, say)

    def say_in_time(doing: str) -> None:
        check_time(deadline)
        say(doing)

    try:
        report = judge(options_until(options, deadline), say_in_time)
    except InfrastructureError:
        check_time(deadline)
        raise
    if report.failure is not None and report.failure.fault in UNCACHED_FAULTS:
        check_time(deadline)
    return report


def check_time(deadline: float | None) -> None:
    """Raises TimeLimitReached after the deadline and its grace."""
    if deadline is not None and time.monotonic() >= deadline + GRACE_SECONDS:
        raise TimeLimitReached("the time limit came before the verdict")
