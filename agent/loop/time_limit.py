"""Cuts a turn short when the time limit of its run is reached.

The policy receives the limit as the deadline of its request. The tools have a short grace beyond
the limit: the verdict is ended between two steps, and within a step the candidate's processes
have no more time than the grace.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from pydantic import JsonValue

from kernelwright.agent.loop.stopping import Budgets
from kernelwright.tools.options import Options
from kernelwright.tools.report import InfrastructureError, Report
from kernelwright.tools.verdict_cache import UNCACHED_FAULTS

TIME_LIMIT_GRACE_SECONDS = 5.0
"""Seconds beyond the time limit for a verdict under way."""
MIN_STEP_SECONDS = 1.0
"""Least time limit of a step of the tools."""


class TimeLimitReached(InfrastructureError):
    """The time limit of the run came before the end of a step of the tools."""


def seconds_of_earlier_calls(spent: Mapping[str, JsonValue] | None) -> float:
    """Returns the seconds in a trajectory's stored costs; 0 if there are none."""
    seconds = (spent or {}).get("seconds", 0.0)
    return float(seconds) if isinstance(seconds, int | float) else 0.0


def time_limit_seconds(budgets: Budgets, earlier_seconds: float, solved: bool) -> float | None:
    """Returns the seconds from the beginning of this call to the time limit of the run; None if
    there is no limit.

    A limit that earlier calls have used up starts again when the same command continues the run.
    earlier_seconds: used by earlier calls. solved: whether there is a correct kernel.
    """
    minutes = [budgets.minutes] if solved else [budgets.minutes, budgets.minutes_unsolved]
    remaining = []
    for limit in minutes:
        if limit is not None:
            seconds = 60.0 * limit
            remaining.append(seconds - earlier_seconds if earlier_seconds < seconds else seconds)
    return min(remaining, default=None)


def options_until(options: Options, deadline: float) -> Options:
    """Returns the options of a verdict with time limits soon after the deadline (of the monotonic
    clock).
    """
    seconds = max(MIN_STEP_SECONDS, deadline + TIME_LIMIT_GRACE_SECONDS - time.monotonic())
    return options.with_(
        compile_seconds=min(options.compile_seconds, seconds),
        seconds=min(options.seconds, seconds),
        lease_seconds=min(options.lease_seconds, seconds),
    )


def judged_until(
    deadline: float | None, options: Options, judge: Callable[[Options, Callable[[str], None]], Report],
    say: Callable[[str], None],
) -> Report:  # fmt: skip
    """Returns the report of `judge`, which receives shortened time limits and a progress
    callback.

    Raises TimeLimitReached if the deadline and its grace end the verdict, or if the shortened
    limits may have caused its fault.
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
        check_time(deadline)  # such a fault (a time-out) may come from the shortened limits
    return report


def check_time(deadline: float | None) -> None:
    """Raises TimeLimitReached after the deadline and its grace."""
    if deadline is not None and time.monotonic() >= deadline + TIME_LIMIT_GRACE_SECONDS:
        raise TimeLimitReached("the time limit came before the verdict")
