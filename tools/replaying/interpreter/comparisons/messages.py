"""The comparisons of a candidate as the judge is told of them, and as it reads them."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kernelwright.tools.compiling.text.kernel_text import file_name, place
from kernelwright.tools.faults import Value, clean_text
from kernelwright.tools.replaying.interpreter.comparisons.outcomes import Comparison, outcomes
from kernelwright.tools.trace.trace import Function

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
    nearest: tuple[float, float] | None = None
    """The two operands at the lane where they were nearest, the data first; None where none were finite."""

    @property
    def one_sided(self) -> bool:
        """Whether one of its outcomes was never produced on a lane that is not masked off."""
        return not (self.true and self.false)


def told_comparisons(functions: Mapping[str, Function]) -> list[dict[str, Any]]:
    """JSON of every comparison that was evaluated."""
    files = {file_name(key): function for key, function in functions.items()}
    return [_told(number, comparison, files) for number, comparison in enumerate(outcomes.every())]


def _told(number: int, comparison: Comparison, files: Mapping[str, Function]) -> dict[str, Any]:
    file, file_line, _ = comparison.sites[0] if comparison.sites else ("", 0, 0)
    function = files.get(Path(file).parent.name)
    constant = (
        comparison.constant
        if comparison.constant is not None and isfinite(comparison.constant)
        else None
    )
    where = None if function is None else place(function, file_line - function.line + 1, 0)
    return {
        "number": number, "line": where.line if where else 0, "text": where.text.strip()[:MAX_TEXT] if where else "",
        "operator": comparison.operator, "dtype": comparison.dtype, "constant": constant,
        "true": comparison.true, "false": comparison.false, "evaluations": comparison.evaluations,
        "nearest": comparison.nearest,
    }  # fmt: skip


def read_comparisons(told: Any) -> list[ToldComparison]:
    """What a replaying process told, with its text cleaned. Raises ValueError where that has not the form of it."""
    try:
        read = [ToldComparison.model_validate(one) for one in told]
    except (ValidationError, TypeError) as error:
        raise ValueError(
            f"comparisons have not the form of them: {type(error).__name__}"
        ) from error
    return [one.with_(text=clean_text(one.text, MAX_TEXT)) for one in read if one.evaluations]
