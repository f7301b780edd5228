"""Labels from the tools: does a completion compile for each target, is it right.

Shard by shard; what has its labels is not asked again.

References are run as they stand: label only corpora whose references you would run yourself. Kernels run in the
sandbox.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from kernelwright.rl.data.rows import Row, read_rows, shards, write_shard
from kernelwright.rl.data.worker import evaluating, evaluator
from kernelwright.tools.report import Value


class MissingLabel(StrEnum):
    """The reasons why no tool has labelled a row."""

    NO_REFERENCE = "no reference"
    NO_ENTRY_POINT = "no entry point (class ModelNew)"
    UNUSABLE_REFERENCE = "the reference cannot be used"
    """It has no Model or no inputs, or fails by itself."""


class LabelCounts(Value):
    """Counts of the rows that the judge has labelled."""

    rows: int = 0
    judged: int = 0
    """Number of rows with labels."""
    unlabelled: dict[MissingLabel, int] = {}
    compiled: dict[str, int] = {}
    correct: int = 0


def label_corpus(
    folder: Path, targets: Sequence[str], correct: bool, workers: int, say: Callable[[str], None]
) -> LabelCounts:
    """Fills `compile` (and `correct`) of every row of the folder, in place, each shard by a rename."""
    total = LabelCounts()
    with evaluating(workers) as pool:
        for number, path in enumerate(there := shards(folder), 1):
            rows = list(read_rows(path))
            wanted = [_wants(row, targets, correct) for row in rows]
            found = pool.map(
                label_row,
                ((row, tuple(targets), correct) for row, w in zip(rows, wanted, strict=True) if w),
                chunksize=4,
            )
            rows = [next(found) if w else row for row, w in zip(rows, wanted, strict=True)]
            if any(wanted):
                write_shard(path, rows)
            total = _added(total, rows, targets)
            say(f"{number} of {len(there)} shards labelled, {total.judged:,} rows")
    return total


def _wants(row: Row, targets: Sequence[str], correct: bool) -> bool:
    if _lacks(row):
        return False
    return any(target not in row.compile for target in targets) or (correct and row.correct is None)


def _lacks(row: Row) -> MissingLabel | None:
    if not row.reference:
        return MissingLabel.NO_REFERENCE
    return None if "class ModelNew" in row.completion else MissingLabel.NO_ENTRY_POINT


def _why(row: Row) -> MissingLabel:
    """Returns the reason why a row has no label."""
    return _lacks(row) or MissingLabel.UNUSABLE_REFERENCE


def _added(total: LabelCounts, rows: Iterable[Row], targets: Sequence[str]) -> LabelCounts:
    compiled, count, judged, right = dict(total.compiled), 0, 0, 0
    unlabelled = Counter(total.unlabelled)
    for row in rows:
        count += 1
        if any(target in row.compile for target in targets):
            judged += 1
        else:
            unlabelled[_why(row)] += 1
        right += row.correct is True
        for target in targets:
            compiled[target] = compiled.get(target, 0) + row.compile.get(target, False)
    return LabelCounts(
        rows=total.rows + count,
        judged=total.judged + judged,
        unlabelled=dict(unlabelled),
        compiled=compiled,
        correct=total.correct + right,
    )


# -------------------------------------------------------------- in a worker
def label_row(asked: tuple[Row, tuple[str, ...], bool]) -> Row:
    """The row with its labels. A reference that cannot be compared with (it is random) leaves the labels of the
    compilation; one that fails leaves the row as it was.
    """
    from kernelwright.tools.evaluation.pipeline import Options
    from kernelwright.tools.problem import Problem, ProblemError

    row, targets, correct = asked
    problem = Problem(name=row.problem or "row", source=row.reference)
    options = Options(
        targets=targets, sizes=0, profile=False, torch_compile=False, interpret=correct
    )
    try:
        report = evaluator().evaluate(problem, row.completion, options)
    except ProblemError:
        return label_row((row, targets, False)) if correct else row
    compiled = {c.target: c.passed for c in report.compiles} or dict.fromkeys(targets, False)
    labels: dict[str, Any] = {"compile": row.compile | compiled}
    if correct and (report.correct or report.failure is not None):
        labels["correct"] = report.correct
    return row.with_(**labels)
