"""Exports kernels as Python files with their origin in the header: the best kernels of a run, or
the kernel shown in the viewer.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from kernelwright.agent.contracts.comments import wrap_comments
from kernelwright.agent.contracts.guarded import guarded_kernel
from kernelwright.agent.export.kernel_file import (
    HEADER_MARK,
    author_line,
    check_path,
    verdict_lines,
)
from kernelwright.agent.reporting.files import write_text
from kernelwright.agent.reporting.samples import ReportedSample
from kernelwright.errors import InputError
from kernelwright.policies.authors import author_of, tuned_author
from kernelwright.store.database import Store
from kernelwright.store.models import Action
from kernelwright.store.records import Turn
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import clean_text


def kernel_files(
    store: Store, samples: Sequence[ReportedSample], tell: Callable[[str], None] = lambda _: None
) -> Iterator[tuple[str, str]]:
    """Yields file name and text for the best candidate of each solved sample.

    tell: called with a progress message before each kernel, because deriving a contract takes
    seconds.
    """
    solved = [sample for sample in samples if sample.correct and sample.candidate_id is not None]
    for number, sample in enumerate(solved, start=1):
        assert sample.candidate_id is not None
        tell(f"writing kernel {number} of {len(solved)}: {sample.problem}, sample {sample.number}")
        stem = re.sub(r"\W+", "_", sample.problem.removesuffix(".py")).strip("_") or "kernel"
        name = f"{stem}_sample_{sample.number}_trajectory_{sample.trajectory_id}.py"
        yield name, kernel_text(store, sample.candidate_id)


def kernel_text(store: Store, candidate_id: int) -> str:
    """Returns a judged candidate's source with comments on its origin and contract.

    A guard at the end enforces the contract. The guard is not judged, because exports run no
    kernels.
    """
    turn = store.turn(candidate_id)
    assert turn.source is not None
    assert turn.report is not None
    kernel = guarded_kernel(problem_of_turn(store, turn), turn.source, turn.report)
    header = [
        f"{HEADER_MARK}, {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(turn.created))} UTC.",
        f"# problem    {turn.problem} ({turn.problem_hash[:16]})",
        author_line(author_of_turn(store, turn)),
        f"# candidate  {candidate_id}, turn {turn.turn + 1}, {turn.action}, of trajectory "
        f"{turn.trajectory_id} in {store.where}",
        *verdict_lines(turn.report),
    ]
    comments = wrap_comments([*(clean_text(line, 300) for line in header), *kernel.lines])
    return comments + "\n" + kernel.text.strip() + "\n"


def author_of_turn(store: Store, turn: Turn) -> str:
    """Returns the author of a candidate; a tuned kernel has the author of its parent."""
    if turn.action is Action.TUNE and turn.parent_id is not None:
        return tuned_author(author_of_turn(store, store.turn(turn.parent_id)))
    return author_of(turn.completion) if turn.completion is not None else ""


def problem_of_turn(store: Store, turn: Turn) -> Problem:
    """Returns the problem of a candidate."""
    row = store.problem(turn.trajectory_id)
    return Problem(name=turn.problem, source=row.source)


def default_name(turn: Turn) -> str:
    """Returns a file name such as `fused_softmax_trajectory_3_turn_2.py`."""
    stem = re.sub(r"\W+", "_", turn.problem.removesuffix(".py")).strip("_") or "kernel"
    return f"{stem}_trajectory_{turn.trajectory_id}_turn_{turn.turn + 1}.py"


def check_kernel(turn: Turn) -> None:
    """Raises InputError if the turn has no code or no verdict."""
    if not turn.source:
        raise InputError("this turn holds no code: there is nothing to export")
    if turn.report is None:
        raise InputError("this turn is not judged yet: press r to read the database again")


def save_kernel(store: Store, turn: Turn, path: str) -> Path:
    """Writes a kernel file.

    Raises InputError if not writable, or if the path is a file of another origin.
    """
    check_kernel(turn)
    if not path.strip():
        raise InputError("name the file to write to")
    chosen = check_path(Path(path.strip()).expanduser())
    try:
        return write_text(chosen, kernel_text(store, turn.candidate_id))
    except OSError as error:
        raise InputError(f"{chosen} cannot be written: {error.strerror or error}") from None
