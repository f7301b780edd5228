"""Estimates the speed of light of a problem on cards that are not here: bytes and operations over
published peaks.

It is a bound of the problem, which no kernel goes below; the time of a particular kernel is not
estimated.
"""

from __future__ import annotations

from collections.abc import Iterable

from kernelwright.tools.hardware.peaks import PEAKS, Peak, peak_of, peak_of_target
from kernelwright.tools.hardware.targets import parse_target
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Roofline, Value
from kernelwright.tools.timing.roofline import roofline
from kernelwright.tools.timing.speed_of_light import work_of

LAUNCH_MILLISECONDS = 0.002
"""Smallest time of an estimate: about a kernel inside a CUDA graph. A round figure, measured on
no card.
"""
LAUNCH_BOUND = "launch"
"""Bound of a problem whose bytes and operations take less than a launch."""


class CardEstimate(Value):
    """Least time which a card allows for a problem."""

    card: str
    """The card whose peaks are used, as its data sheet names it: `A100 SXM4 80GB`."""
    stands_for: str = ""
    """Requested card, if its own peaks are not tabulated; empty if they are, and for a target."""
    target: str
    """Compile target, such as sm_80 or gfx942."""
    source: str
    """The data sheet of the peaks."""
    roofline: Roofline
    """Bytes, operations, which of them bounds the time, or the launch of a kernel, and the milliseconds."""


def estimate_cards(problem: Problem, names: Iterable[str]) -> tuple[CardEstimate, ...]:
    """Returns an estimate for each card or target, without duplicates; empty if the reference
    cannot be counted on tensors without data.

    names: as in `--target`: a card (a100, l4, rtx4090) or a target (sm_80), represented by its
    best known card.
    """
    cards: dict[str, tuple[Peak, str]] = {}
    for name in names:
        peak, stands_for = _peak_named(name)
        if peak is not None:
            cards.setdefault(peak.gpu, (peak, stands_for))
    work = work_of(problem) if cards else None
    if work is None:
        return ()
    return tuple(
        CardEstimate(
            card=peak.gpu,
            stands_for=stands_for,
            target=peak.target,
            source=peak.source,
            roofline=_with_launch(roofline(work, peak.bytes_per_second, peak.rates)),
        )
        for peak, stands_for in cards.values()
    )


def _with_launch(bound: Roofline) -> Roofline:
    """Returns the bound of a call with at least one kernel launch, never below
    LAUNCH_MILLISECONDS.
    """
    if bound.milliseconds is None or bound.milliseconds >= LAUNCH_MILLISECONDS:
        return bound
    return bound.with_(milliseconds=LAUNCH_MILLISECONDS, bound=LAUNCH_BOUND)


def _peak_named(name: str) -> tuple[Peak | None, str]:
    """Returns the peaks of a card, or of the first card of its target together with the requested
    name.

    The table's first card with the model's word is taken, unless the name says more (`H100
    PCIe`).
    """
    spaced = name.upper().replace("RTX", "RTX ").replace("_", " ").split()
    if len(spaced) == 1 or spaced[0] == "RTX":
        named_peak = next((peak for peak in PEAKS if spaced[-1] in peak.gpu.upper().split()), None)
    else:
        named_peak = peak_of(" ".join(spaced))
    target = parse_target(name).name
    if named_peak is not None:
        return named_peak, ""
    is_target = (
        name.lower().removeprefix("sm_").removeprefix("sm").replace(".", "")[:2].isdigit()
        or name == target
    )
    return peak_of_target(target), "" if is_target else name
