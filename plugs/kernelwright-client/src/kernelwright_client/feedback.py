"""A verdict in words, for a policy that hands in several kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

GOES_ON = "Hand in a faster kernel that is still correct."


def feedback_of(
    correct: bool, explanation: str, report: Mapping[str, Any], *, goes_on: bool
) -> str:
    """Returns a few lines: why a kernel is not correct, or how fast it is and what bounds it.

    report: as `agent check --json` prints it. goes_on: a correct kernel is to be made faster.
    """
    if not correct:
        return _failure(explanation, report.get("failure") or {})
    lines = ["The kernel is correct.", *_speed(report.get("profile") or {})]
    return "\n".join([*lines, GOES_ON] if goes_on else lines)


def _failure(explanation: str, failure: Mapping[str, Any]) -> str:
    lines = [f"The kernel is not correct: {explanation}"]
    where = failure.get("where") or {}
    if where.get("line"):
        lines.append(f"line {where['line']}: {where.get('text', '')}")
    if hint := (failure.get("mismatch") or {}).get("hint", ""):
        lines.append(hint)
    return "\n".join(lines)


def _speed(profile: Mapping[str, Any]) -> list[str]:
    lines = []
    if (speedup := profile.get("speedup")) is not None:
        low = profile.get("speedup_low")
        bound = f" (at least {low:.2f} times)" if low is not None else ""
        lines.append(f"It runs {speedup:.2f} times as fast as eager PyTorch{bound}.")
    if (compiled := profile.get("speedup_compiled")) is not None:
        lines.append(f"It runs {compiled:.2f} times as fast as torch.compile.")
    return [*lines, *_bound(profile), *_slowest_launch(profile)]


def _bound(profile: Mapping[str, Any]) -> list[str]:
    roofline, candidate = profile.get("roofline") or {}, profile.get("candidate") or {}
    bound, least, taken = (
        roofline.get("bound"),
        roofline.get("milliseconds"),
        candidate.get("median"),
    )
    if not bound or least is None or not taken:
        return []
    return [
        f"It takes {taken:.4g} ms; the GPU could do it in {least:.4g} ms ({least / taken:.0%} of the speed of light), "
        f"bound by {bound}."
    ]


def _slowest_launch(profile: Mapping[str, Any]) -> list[str]:
    timed = [launch for launch in profile.get("launches") or () if launch.get("ms") is not None]
    if not timed:
        return []
    slowest = max(timed, key=lambda launch: launch["ms"])
    share = f", {slowest['share']:.0%} of a call" if slowest.get("share") is not None else ""
    grid = tuple(slowest["grid"])
    return [
        f"Its slowest launch is {slowest['kernel']} on the grid {grid}: {slowest['ms']:.4g} ms{share}."
    ]
