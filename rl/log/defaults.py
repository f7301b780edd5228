"""Defaults read from the log itself: the reward formula if none is named, and the turns selected
by a filter.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from kernelwright.agent.rewards.formula import (
    DEFAULT_FORMULA,
    EXECUTION_FORMULA,
    FORMULA_PRESETS,
    Formula,
    find_formula,
)
from kernelwright.agent.runtime.field_errors import describe_field_error
from kernelwright.errors import InputError
from kernelwright.store.database import Store
from kernelwright.store.models import CandidateState
from kernelwright.store.records import CandidateFilter

AUTO = "auto"
FILTER_FIELDS = (
    "run",
    "problem",
    "suite",
    "policy",
    "policy_revision",
    "adapter_revision",
    "since",
    "until",
    "action",
)
"""Names accepted by `--filter`: columns of the store."""


def choose_formula(store: Store, name: str, chosen: CandidateFilter | None = None) -> Formula:
    """Returns the named formula. `auto` returns the default formula, or execution alone if most
    correct turns were not timed on a GPU. Raises InputError.
    """
    if name != AUTO:
        return find_formula(name)
    correct = (chosen or CandidateFilter()).with_(state=CandidateState.JUDGED, correct=True)
    # Half of the correct turns must be timed for a reward that includes speed.
    timed, right = store.count(correct.with_(min_speedup=0.0)), store.count(correct)
    return FORMULA_PRESETS[DEFAULT_FORMULA if timed and 2 * timed >= right else EXECUTION_FORMULA]


def parse_filter(filters: Sequence[str]) -> CandidateFilter:
    """Parses filters such as `run=nightly`, `problem=fused_softmax` and `since=2d`; all must
    hold. Raises InputError.
    """
    fields: dict[str, object] = {}
    for text in filters:
        name, equals, value = text.partition("=")
        if not equals or name not in FILTER_FIELDS or not value:
            raise InputError(
                f"--filter {text!r}: write NAME=VALUE with one of {', '.join(FILTER_FIELDS)}"
            )
        fields[name] = _seconds(text, value) if name in ("since", "until") else value
    from pydantic import ValidationError

    try:
        return CandidateFilter.model_validate(fields)
    except ValidationError as error:
        message = describe_field_error(error.errors()[0], whole="all")
        raise InputError(f"--filter {message}") from error


def _seconds(text: str, value: str) -> float:
    """Parses an age such as `2d`, `6h` or `30m`, or a date such as 2026-11-21."""
    units = {"d": 86400.0, "h": 3600.0, "m": 60.0}
    try:
        if value[-1] in units:
            return time.time() - float(value[:-1]) * units[value[-1]]
        return time.mktime(time.strptime(value, "%Y-%m-%d"))
    except ValueError as error:
        raise InputError(
            f"--filter {text!r}: give 2d, 6h, 30m or a date such as 2026-11-21"
        ) from error
