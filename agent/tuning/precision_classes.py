"""Finds the best kernel of each precision class, so an emulated product is never compared with
another arithmetic unnoticed.

A class includes the configurations of all narrower classes: if the fastest configuration of all
multiplies in tf32 and the fastest fp32 configuration is slower, the result has both, each under its
class.
"""

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
"""Maximum number of a class's configurations that are judged until one is correct."""
Judged = Callable[[Mapping[str, Setting]], Report]


def best_of_classes(
    space: ParameterSpace, measured: HalvingResult, judged: Judged | None
) -> dict[str, JudgedConfiguration]:
    """Returns the fastest measured configuration of each class. A class includes the
    configurations of all narrower classes.

    judged: returns the full verdict on a configuration; the first that passes is returned with
    its error, none if none of the fastest passes. None: nothing is judged.
    """
    by_class: dict[str, JudgedConfiguration] = {}
    for precision_class in PrecisionClass:
        rows = _measured_in(precision_class, space, measured)
        for row, configuration in rows[: MAX_JUDGED_PER_CLASS if judged is not None else 1]:
            report = judged(configuration) if judged is not None else None
            chosen = _chosen(space, configuration, row, report)
            if chosen.correct is not False:
                by_class[precision_class.value] = chosen
                break
    return by_class


def _measured_in(
    kind: PrecisionClass, space: ParameterSpace, measured: HalvingResult
) -> Sequence[tuple[TriedConfiguration, dict[str, Setting]]]:  # fmt: skip
    """Returns the measured rows of a class with their whole configurations, the fastest first.
    Values of other groups are the best's.
    """
    measured_rows = []
    for group in measured.groups:
        for row in group.rows:
            values = {name: row.configuration[name] for name in group.parameters}
            whole = {**measured.best, **values}
            # The group itself must have a product; the best values of other groups do not count.
            group_class = precision_class_of(space.only(set(values)), values)
            multiplies = precision_class_of(space, row.configuration) is not None and group_class
            if row.timing is not None and multiplies and is_allowed(space, whole, kind):
                measured_rows.append((row, whole))

    def median(pair: tuple[TriedConfiguration, dict[str, Setting]]) -> float:
        timing = pair[0].timing
        return timing.median if timing is not None else 0.0

    return sorted(measured_rows, key=median)


def _chosen(
    space: ParameterSpace,
    configuration: dict[str, Setting],
    row: TriedConfiguration,
    report: Report | None,
) -> JudgedConfiguration:
    correctness = report.correctness if report is not None else None
    measured_checks = []
    for check in correctness.checks if correctness is not None else ():
        if check.max_error is not None and check.eager_error is not None:
            measured_checks.append(check)
    worst = max(measured_checks, key=lambda check: check.max_error or 0.0, default=None)
    return JudgedConfiguration(
        configuration=configuration, changes=changed_settings(space, configuration),
        precision=precision_class_of(space, configuration),
        timing=row.timing, correct=report.correct if report is not None else None,
        error=worst.max_error if worst is not None else None,
        eager_error=worst.eager_error if worst is not None else None,
    )  # fmt: skip
