"""Joins the verdicts at each shape that a problem names to a single report.

verdicts    decode: correct, 1.9 times eager    prefill: correct, 1.3 times eager
report      correct, with the profile of prefill, and both verdicts in `shapes`
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from kernelwright.tools.problem import Problem, ProblemError
from kernelwright.tools.references.input_spec import input_spec
from kernelwright.tools.report import Report, ShapeVerdict
from kernelwright.tools.shapes.judged_shapes import (
    JudgedShape,
    candidate_at,
    problem_at,
    problem_to_judge,
)
from kernelwright.tools.source import candidate_hash

Say = Callable[[str], None]
JudgeAt = Callable[[Problem, str, Say], Report]
"""Judges a candidate's text for a problem at a single shape."""


def judged_at_every_shape(
    problem: Problem, source: str, shapes: Sequence[JudgedShape], judge: JudgeAt, say: Say
) -> Report:
    """Returns the report of a candidate with a verdict at each shape. Raises as `judge` does."""
    verdicts: list[ShapeVerdict] = []
    for number, shape in enumerate(shapes, 1):

        def say_at_shape(
            step: str, place: str = f"{shape.name} ({number} of {len(shapes)})"
        ) -> None:
            say(f"shape {place}: {step}")

        target = problem_to_judge(problem, shape)
        report = judge(target, candidate_at(source, shape), say_at_shape)
        verdicts.append(
            ShapeVerdict(
                name=shape.name,
                dtype=shape.dtype,
                inputs=described_inputs(problem_at(problem, shape)),
                report=report,
            )
        )
    return _joined(problem, source, verdicts)


def _joined(problem: Problem, source: str, verdicts: Sequence[ShapeVerdict]) -> Report:
    deciding = _deciding(verdicts)
    report = deciding.report
    failure = report.failure
    if failure is not None:
        failure = failure.with_(message=f"at shape {deciding.name}: {failure.message}")
    return report.with_(
        problem=problem.name,
        problem_hash=problem.hash,
        candidate_hash=candidate_hash(source),
        failure=failure,
        shapes=tuple(verdicts),
        seconds=sum(verdict.report.seconds for verdict in verdicts),
        cached=all(verdict.report.cached for verdict in verdicts),
    )


def _deciding(verdicts: Sequence[ShapeVerdict]) -> ShapeVerdict:
    """Returns the first verdict that is not correct (one that found a fault first), else the one with the lowest
    speedup.
    """
    wrong = [verdict for verdict in verdicts if not verdict.report.correct]
    faulty = [verdict for verdict in wrong if verdict.report.failure is not None]
    if wrong:
        return (faulty or wrong)[0]
    return min(verdicts, key=lambda verdict: verdict.report.speedup or 0.0)


def described_inputs(problem: Problem) -> tuple[str, ...]:
    """Returns dtype and shape of each tensor of a call; empty if the reference does not run here."""
    try:
        spec = input_spec(problem, as_it_is=True)
    except ProblemError:
        return ()
    return tuple(_tensors(spec.inputs))


def _tensors(described: object) -> Iterator[str]:
    """Yields the tensors of a description (tools/wire.py) in order."""
    if isinstance(described, dict) and "tensor" in described:
        tensor = described["tensor"]
        extents = "x".join(map(str, tensor["shape"])) or "()"
        yield f"{tensor['dtype']} {extents}"
    elif isinstance(described, dict | list):
        parts = described.values() if isinstance(described, dict) else described
        for part in parts:
            yield from _tensors(part)
