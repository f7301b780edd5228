"""Parses filters of turns: `fault:mismatch action:repair problem:fused_softmax speedup:1.2
correct`.
"""

from __future__ import annotations

import shlex
from enum import StrEnum

from kernelwright.errors import InputError
from kernelwright.store.models import Action, CandidateState
from kernelwright.store.records import CandidateFilter
from kernelwright.tools.report import Cheat, Fault, Rung

ENUM_FILTERS: dict[str, type[StrEnum]] = {
    "fault": Fault,
    "action": Action,
    "rung": Rung,
    "cheat": Cheat,
    "state": CandidateState,
}
TEXT_FILTERS = {
    "problem": "problem",
    "policy": "policy",
    "run": "run",
    "suite": "suite",
    "stop": "stop_reason",
    "on": "judged_on",
}
FLAG_FILTERS = {
    "correct": ("correct", True),
    "incorrect": ("correct", False),
    "finished": ("finished", True),
    "unfinished": ("finished", False),
}
FILTER_EXAMPLE = (
    "fault:mismatch, action:repair, rung:compile, problem:NAME, policy:NAME, run:NAME, stop:REASON, "
    "speedup:1.2, "
    "correct"
)


def parse_filter(text: str) -> CandidateFilter:
    """Parses a filter whose parts must all hold; an empty text filters nothing. Raises
    InputError.
    """
    try:
        parts = shlex.split(text)
    except ValueError:
        raise InputError("the filter has a quote that does not end") from None
    conditions: dict[str, object] = {}
    for part in parts:
        name, value = _read(part)
        if name in conditions:
            raise InputError(
                f"the filter says {part!r} after something else of that kind: give each once"
            )
        conditions[name] = value
    return CandidateFilter.model_validate(conditions)


def _read(part: str) -> tuple[str, object]:
    if part in FLAG_FILTERS:
        return FLAG_FILTERS[part]
    key, _, value = part.replace(">=", ":", 1).partition(":")
    if key == "speedup":
        return "min_speedup", _number(value)
    if not value or key not in (*ENUM_FILTERS, *TEXT_FILTERS):
        raise InputError(f"{part!r} is no filter: write such as {FILTER_EXAMPLE}")
    return (key, _member(key, value)) if key in ENUM_FILTERS else (TEXT_FILTERS[key], value)


def _member(key: str, value: str) -> StrEnum:
    kind = ENUM_FILTERS[key]
    try:
        return kind(value.replace(" ", "_"))
    except ValueError:
        raise InputError(f"{key}:{value} is not known: choose {', '.join(kind)}") from None


def _number(value: str) -> float:
    try:
        return float(value.removesuffix("x"))
    except ValueError:
        raise InputError(f"speedup:{value} is no number: write such as speedup:1.2") from None
