"""The comparisons and constant results of a candidate as the judge is told of them, and as it reads them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from kernelwright.tools.compiling.text.kernel_text import candidate_line, file_name
from kernelwright.tools.faults import Value, clean_text
from kernelwright.tools.replaying.interpreter.comparisons.constant_results import (
    ObservedResult,
    constants_beside,
    observation,
)
from kernelwright.tools.replaying.interpreter.comparisons.outcomes import (
    Comparison,
    Sites,
    outcomes,
)
from kernelwright.tools.trace.trace import Function

MAX_RESULTS_TOLD = 64
MAX_TEXT = 160
"""Characters of a line of text."""


class ToldComparison(Value):
    """One comparison on data, as a replaying process tells it."""

    number: int
    """Which of the candidate's comparisons it is, in all answers of one process."""
    line: int
    """Line of the candidate's file; 0 for a library's."""
    text: str
    operator: str
    dtype: str
    constant: float | None = None
    """The second operand, where it is one finite number that no data decides."""
    true: bool
    false: bool
    evaluations: int
    of_arguments: bool = False
    """Whether its operands follow from the arguments of the launch alone."""
    nearest: tuple[float, float] | None = None
    """The two operands at the lane where they were nearest, the data first; None where none were finite."""

    @property
    def one_sided(self) -> bool:
        """Whether one of its outcomes was never produced on a lane that is not masked off."""
        return not (self.true and self.false)


class ToldResult(Value):
    """A result that was one value in all calls although an operand took several, as a replaying process tells it."""

    line: int
    """Line of the candidate's file; 0 for a library's."""
    text: str
    operation: str
    """Of Triton's builder or language: `ashr`, `fp_to_si`, `reduce`."""
    value: float | None = None
    """The only value; None where it is not finite."""
    constants: tuple[float, ...] = ()
    """Whole numbers of the text that meet data on the way to it."""


def told_results(functions: Mapping[str, Function]) -> list[dict[str, Any]]:
    """Returns JSON of the results that were one value although an operand took several, each with its line."""
    files = {file_name(key): function for key, function in functions.items()}
    told = (_told_result(result, files) for result in observation.constants())
    by_line = {
        (result["line"], result["text"]): result for result in told
    }  # `sdiv` is made of `idiv`
    return list(itertools.islice(by_line.values(), MAX_RESULTS_TOLD))


def _told_result(result: ObservedResult, files: Mapping[str, Function]) -> dict[str, Any]:
    line, text = _line_of(result.sites, files)
    value = float(result.value)
    return {
        "line": line, "text": text, "operation": result.operation, "value": value if isfinite(value) else None,
        "constants": constants_beside(result),
    }  # fmt: skip


def read_results(told: Any) -> list[ToldResult]:
    """Returns what a replaying process told, with its text cleaned. Raises ValueError where it has another form."""
    try:
        read = [ToldResult.model_validate(result) for result in told]
    except (ValidationError, TypeError) as error:
        raise ValueError(
            f"results of operations have another form: {type(error).__name__}"
        ) from error
    return [result.with_(text=clean_text(result.text, MAX_TEXT)) for result in read]


def _line_of(sites: Sites, files: Mapping[str, Function]) -> tuple[int, str]:
    """Returns the line of the candidate's file and its text; 0 and nothing for a library's."""
    file, file_line, _ = sites[0] if sites else ("", 0, 0)
    function = files.get(Path(file).parent.name)
    where = None if function is None else candidate_line(function, file_line - function.line + 1, 0)
    return (where.line, where.text.strip()[:MAX_TEXT]) if where else (0, "")


def told_comparisons(functions: Mapping[str, Function]) -> list[dict[str, Any]]:
    """JSON of every comparison that was evaluated."""
    files = {file_name(key): function for key, function in functions.items()}
    return [
        _told(number, comparison, files)
        for number, comparison in enumerate(outcomes.every())
        if not comparison.is_assumed
    ]


def _told(number: int, comparison: Comparison, files: Mapping[str, Function]) -> dict[str, Any]:
    line, text = _line_of(comparison.sites, files)
    constant = (
        comparison.constant
        if comparison.constant is not None and isfinite(comparison.constant)
        else None
    )
    return {
        "number": number, "line": line, "text": text,
        "operator": comparison.operator, "dtype": comparison.dtype, "constant": constant,
        "true": comparison.true, "false": comparison.false, "evaluations": comparison.evaluations,
        "nearest": comparison.nearest, "of_arguments": comparison.of_arguments,
    }  # fmt: skip


class ToldOutcomes(NamedTuple):
    """What a replaying process tells of the choices of a candidate's kernels."""

    comparisons: list[ToldComparison]
    constant_results: list[ToldResult]


def read_outcomes(answer: Mapping[str, Any]) -> ToldOutcomes:
    """Returns what a replaying process answered. Raises ValueError where it has another form."""
    return ToldOutcomes(
        read_comparisons(answer.get("comparisons")), read_results(answer.get("results"))
    )


def read_comparisons(told: Any) -> list[ToldComparison]:
    """What a replaying process told, with its text cleaned. Raises ValueError where that has not the form of it."""
    try:
        read = [ToldComparison.model_validate(one) for one in told]
    except (ValidationError, TypeError) as error:
        raise ValueError(
            f"comparisons have not the form of them: {type(error).__name__}"
        ) from error
    return [one.with_(text=clean_text(one.text, MAX_TEXT)) for one in read if one.evaluations]
