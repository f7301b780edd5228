"""Messages about a candidate's comparisons and constant results, from the replaying process to the
judge."""

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
MAX_LINE_CHARACTERS_SHOWN = 160
"""Maximum length of a source line in a message."""


class ToldComparison(Value):
    """A comparison of data, as reported by the replaying process."""

    number: int
    """Number of the comparison among the candidate's, constant within a process."""
    line: int
    """Line in the candidate's file; 0 for library code."""
    text: str
    operator: str
    dtype: str
    constant: float | None = None
    """The second operand, if a single finite number independent of data."""
    true: bool
    false: bool
    evaluations: int
    of_arguments: bool = False
    """Both operands follow from the launch's arguments alone."""
    nearest: tuple[float, float] | None = None
    """Operands at the lane with the smallest distance, data first; None if none were finite."""

    @property
    def one_sided(self) -> bool:
        """An outcome never occurred on an active lane."""
        return not (self.true and self.false)


class ToldResult(Value):
    """A result with a single value although an operand varied, as reported by the replaying
    process."""

    line: int
    """Line in the candidate's file; 0 for library code."""
    text: str
    operation: str
    """Name in Triton's builder or language: `ashr`, `fp_to_si`, `reduce`."""
    value: float | None = None
    """The only value; None if not finite."""
    constants: tuple[float, ...] = ()
    """Integers in the source that are combined with data on the way to the result."""


def told_results(functions: Mapping[str, Function]) -> list[dict[str, Any]]:
    """Returns JSON of results with a single value although an operand varied, each with its line."""
    files = {file_name(key): function for key, function in functions.items()}
    results = (_result_as_json(result, files) for result in observation.constants())
    # A signed division has two steps, `sdiv` and `idiv`, on a single line: the last is reported.
    by_line = {
        (result["line"], result["text"]): result for result in results
    }  # `sdiv` is made of `idiv`
    return list(itertools.islice(by_line.values(), MAX_RESULTS_TOLD))


def _result_as_json(result: ObservedResult, files: Mapping[str, Function]) -> dict[str, Any]:
    line, text = _line_of(result.sites, files)
    value = float("nan") if result.value is None else float(result.value)
    return {
        "line": line, "text": text, "operation": result.operation, "value": value if isfinite(value) else None,
        "constants": constants_beside(result),
    }  # fmt: skip


def read_results(answer: Any) -> list[ToldResult]:
    """Parses reported results and cleans their text. Raises ValueError for a malformed report."""
    try:
        read = [ToldResult.model_validate(result) for result in answer]
    except (ValidationError, TypeError) as error:
        raise ValueError(
            f"results of operations have another form: {type(error).__name__}"
        ) from error
    return [
        result.with_(text=clean_text(result.text, MAX_LINE_CHARACTERS_SHOWN)) for result in read
    ]


def _line_of(sites: Sites, files: Mapping[str, Function]) -> tuple[int, str]:
    """Returns the line number in the candidate's file and the line's text; 0 and "" for library
    code."""
    file, file_line, _ = sites[0] if sites else ("", 0, 0)
    function = files.get(Path(file).parent.name)
    source_line = (
        None if function is None else candidate_line(function, file_line - function.line + 1, 0)
    )
    return (
        (source_line.line, source_line.text.strip()[:MAX_LINE_CHARACTERS_SHOWN])
        if source_line
        else (0, "")
    )


def told_comparisons(functions: Mapping[str, Function]) -> list[dict[str, Any]]:
    """Returns JSON of all comparisons that the kernel does not assume."""
    files = {file_name(key): function for key, function in functions.items()}
    return [
        _comparison_as_json(number, comparison, files)
        for number, comparison in enumerate(outcomes.every())
        if not comparison.is_assumed
    ]


def _comparison_as_json(
    number: int, comparison: Comparison, files: Mapping[str, Function]
) -> dict[str, Any]:
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
    """Comparisons and constant results reported by a replaying process."""

    comparisons: list[ToldComparison]
    constant_results: list[ToldResult]


def read_outcomes(answer: Mapping[str, Any]) -> ToldOutcomes:
    """Parses an answer of the replaying process. Raises ValueError for a malformed answer."""
    return ToldOutcomes(
        read_comparisons(answer.get("comparisons")), read_results(answer.get("results"))
    )


def read_comparisons(answer: Any) -> list[ToldComparison]:
    """Parses reported comparisons and cleans their text. Raises ValueError for a malformed report."""
    try:
        read = [ToldComparison.model_validate(comparison) for comparison in answer]
    except (ValidationError, TypeError) as error:
        raise ValueError(
            f"comparisons have not the form of them: {type(error).__name__}"
        ) from error
    return [
        comparison.with_(text=clean_text(comparison.text, MAX_LINE_CHARACTERS_SHOWN))
        for comparison in read
        if comparison.evaluations
    ]
