"""The best kernel of each precision class, so that nobody takes an emulated product for another arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kernelwright.agent.tuning.measuring import HalvingResult
from kernelwright.agent.tuning.settings import PrecisionClass, is_allowed, precision_class_of
from kernelwright.agent.tuning.tuned import JudgedConfiguration, TriedConfiguration
from kernelwright.tools.report import Report
from kernelwright.tools.tuning.kernel_text.parameters import (
    ParameterSpace,
    Setting,
    changed_settings,
)

MAX_JUDGED_PER_CLASS = 2
"""Configurations of a class that are judged until one is right."""
Judged = Callable[[Mapping[str, Setting]], Report]


def best_of_classes(
    space: ParameterSpace, measured: HalvingResult, judged: Judged | None
) -> dict[str, JudgedConfiguration]:
    """Returns by class the fastest measured configuration that lies in it; every class has those of the narrower ones.

    judged: the full verdict; where it is given the first one that passes is told, with its error, and none where none
    of the fastest passes. None: nothing is judged.
    """
    found: dict[str, JudgedConfiguration] = {}
    for kind in PrecisionClass:
        rows = _measured_in(kind, space, measured)
        for row, configuration in rows[: MAX_JUDGED_PER_CLASS if judged is not None else 1]:
            chosen = _chosen(
                space, configuration, row, judged(configuration) if judged is not None else None
            )
            if chosen.correct is not False:
                found[kind.value] = chosen
                break
    return found


def _measured_in(
    kind: PrecisionClass, space: ParameterSpace, measured: HalvingResult
) -> Sequence[tuple[TriedConfiguration, dict[str, Setting]]]:  # fmt: skip
    """Fastest first. The other groups' numbers are those of the best."""
    found = []
    for group in measured.groups:
        for row in group.rows:
            own = {name: row.configuration[name] for name in group.parameters}
            whole = {**measured.best, **own}
            multiplies = precision_class_of(
                space, row.configuration
            ) is not None and precision_class_of(space.only(set(own)), own)
            if row.timing is not None and multiplies and is_allowed(space, whole, kind):
                found.append((row, whole))
    return sorted(found, key=lambda one: one[0].timing.median if one[0].timing is not None else 0.0)


def _chosen(
    space: ParameterSpace,
    configuration: dict[str, Setting],
    row: TriedConfiguration,
    report: Report | None,
) -> JudgedConfiguration:
    checks = (
        report.correctness.checks if report is not None and report.correctness is not None else ()
    )
    known = [c for c in checks if c.max_error is not None and c.eager_error is not None]
    worst = max(known, key=lambda c: c.max_error or 0.0, default=None)
    return JudgedConfiguration(
        configuration=configuration, changes=changed_settings(space, configuration),
        precision=precision_class_of(space, configuration),
        timing=row.timing, correct=report.correct if report is not None else None,
        error=worst.max_error if worst is not None else None,
        eager_error=worst.eager_error if worst is not None else None,
    )  # fmt: skip
