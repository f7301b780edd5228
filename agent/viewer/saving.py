"""`x`: the kernel of the turn that is looked at, as a file with its provenance in the header."""

from __future__ import annotations

import re
from pathlib import Path

from agent.exits import InputError
from agent.export.kernels import kernel_text
from agent.kernel_file import check_path
from agent.report.writing import write_text
from store.database import Store
from store.records import Turn


def default_name(turn: Turn) -> str:
    """`fused_softmax_trajectory_3_turn_2.py`."""
    stem = re.sub(r"\W+", "_", turn.problem.removesuffix(".py")).strip("_") or "kernel"
    return f"{stem}_trajectory_{turn.trajectory_id}_turn_{turn.turn + 1}.py"


def check_kernel(turn: Turn) -> None:
    """Raises InputError where there is nothing to write."""
    if not turn.source:
        raise InputError("this turn holds no code: there is nothing to export")
    if turn.report is None:
        raise InputError("this turn is not judged yet: r reads the database again")


def save_kernel(store: Store, turn: Turn, path: str) -> Path:
    """Raises InputError where it cannot be written, or would take the place of someone's own file."""
    check_kernel(turn)
    if not path.strip():
        raise InputError("give the name of a file")
    chosen = check_path(Path(path.strip()).expanduser())
    try:
        return write_text(chosen, kernel_text(store, turn.candidate_id))
    except OSError as error:
        raise InputError(f"{chosen} cannot be written: {error.strerror or error}") from None
