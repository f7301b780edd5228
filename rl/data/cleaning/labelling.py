"""Labels of the tools: whether a completion compiles for each target, and whether it is correct.

Works shard by shard; labelled rows are skipped. References are executed unsandboxed: label only
corpora whose references are trusted. Kernels run in the sandbox.
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
    """The reasons for a row without labels."""

    NO_REFERENCE = "no reference"
    NO_ENTRY_POINT = "no entry point (class ModelNew)"
    UNUSABLE_REFERENCE = "the reference cannot be used"
    """The reference has no Model or no inputs, or fails by itself."""


class LabelCounts(Value):
    """Counts of the rows labelled by the judge."""

    rows: int = 0
    judged: int = 0
    """Number of rows with labels."""
    unlabelled: dict[MissingLabel, int] = {}
    compiled: dict[str, int] = {}
    correct: int = 0


def label_corpus(
    folder: Path, targets: Sequence[str], correct: bool, workers: int, say: Callable[[str], None]
) -> LabelCounts:
    """Fills `compile` (and `correct`) of every row of the folder, in place, each shard by a
    rename.
    """
    total = LabelCounts()
    paths = shards(folder)
    with evaluating(workers) as pool:
        for number, path in enumerate(paths, 1):
            rows = list(read_rows(path))
            unlabelled = [at for at, row in enumerate(rows) if _wants(row, targets, correct)]
            work = [(rows[at], tuple(targets), correct) for at in unlabelled]
            labelled = pool.map(label_row, work, chunksize=4)
            for at, row in zip(unlabelled, labelled, strict=True):
                rows[at] = row
            if unlabelled:
                write_shard(path, rows)
            total = _added(total, rows, targets)
            say(f"{number} of {len(paths)} shards labelled, {total.judged:,} rows")
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
    """Returns the reason for a row without labels."""
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
def label_row(arguments: tuple[Row, tuple[str, ...], bool]) -> Row:
    """Returns the row with its labels. A reference unfit for comparison (it is random) leaves the
    compilation labels; a failing reference leaves the row unchanged.
    """
    from kernelwright.tools.evaluation.pipeline import Options
    from kernelwright.tools.problem import Problem, ProblemError

    row, targets, correct = arguments
    problem = Problem(name=row.problem or "row", source=row.reference)
    options = Options(
        targets=targets, sizes=0, profile=False, torch_compile=False, interpret=correct
    )
    try:
        report = evaluator().evaluate(problem, row.completion, options)
    except ProblemError:
        # A reference that cannot be run still allows the compilation labels.
        return label_row((row, targets, False)) if correct else row
    compiled = {c.target: c.passed for c in report.compiles} or dict.fromkeys(targets, False)
    labels: dict[str, Any] = {"compile": row.compile | compiled}
    if correct and (report.correct or report.failure is not None):
        labels["correct"] = report.correct
    return row.with_(**labels)
