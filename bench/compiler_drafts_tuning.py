"""TUNE for bench.compiler_drafts: the numbers of a draft that is right, searched as `agent solve` searches them."""

from __future__ import annotations

import tempfile
from pathlib import Path

from kernelwright.agent.tuning.journal import Journal
from kernelwright.agent.tuning.settings import TuneSettings
from kernelwright.agent.tuning.tuned import TuningResult
from kernelwright.agent.tuning.tuning import Tuner, identity_of
from kernelwright.agent.tuning.turn import precision_for, turn_settings
from kernelwright.errors import InputError
from kernelwright.tools.evaluation.pipeline import Evaluator
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import InfrastructureError, Speedup, Value

CONFIGURATIONS, MEASURED = 14, 6
"""Of one draft: compiled, and timed. A suite of 100 has seconds of a GPU and of its cores for each."""
EMULATED = {"tf32x3", "bf16x6", "bf16x3"}
"""Products of fp32 that are several of fewer bits."""


class TunedRow(Value):
    """What TUNE found of one draft."""

    changes: dict[str, int | str] = {}
    """What differs from the draft; empty where nothing was certainly faster."""
    note: str = ""
    """Why nothing was measured."""
    precision: str = ""
    """The class of the winner's products of fp32; empty where it has none."""
    error: float | None = None
    """The winner's largest error against float64."""
    eager_error: float | None = None
    launches: int = 0
    gpu_seconds: float = 0.0
    gained: float = 1.0
    """Milliseconds before over after."""
    unsplit: float = 1.0
    """The winner's milliseconds over those of the best without products of several parts: at most 1."""


def tuned(
    problem: Problem,
    source: str,
    own_work: str,
    evaluator: Evaluator,
    seconds: float,
    folder: Path | None,
) -> tuple[TunedRow, str]:
    """What was found, and the text with the numbers that won: the draft's own where none are faster.

    seconds: of timing on the GPU. folder: of journals, so that a bench that was stopped goes on; None keeps none.
    """
    settings = turn_settings(evaluator.target, evaluator.device, own_work).with_(
        precision=precision_for(problem), gpu_seconds=seconds, configurations=CONFIGURATIONS, measured=MEASURED,
        by_weight=True, verdict=False,
    )  # fmt: skip
    try:
        with tempfile.TemporaryDirectory(prefix="tuning-") as scratch:
            found, text = _searched(problem, source, evaluator, settings, folder or Path(scratch))
    except (InputError, InfrastructureError) as error:
        return TunedRow(note=str(error)), source
    return _row(found), text or source


def _searched(
    problem: Problem, source: str, evaluator: Evaluator, settings: TuneSettings, folder: Path
) -> tuple[TuningResult, str]:
    identity = identity_of(problem, source, settings, evaluator.environment().gpu or "cpu")
    with Journal(folder / f"{identity[:24]}.jsonl", identity) as journal:
        return Tuner(evaluator, problem, source, settings, journal, kernel="draft").run()


def _row(found: TuningResult) -> TunedRow:
    chosen = found.chosen[0] if found.chosen else None
    note = found.failure or ("" if found.measured else "nothing was measured: there is no GPU")
    row = TunedRow(note=note, launches=found.launches, gpu_seconds=found.gpu_seconds)
    if chosen is None or chosen.timing is None:
        return row
    best = next(
        (c for c in found.by_precision.values() if c.configuration == chosen.configuration), None
    )
    return row.with_(
        changes=chosen.changes, precision=chosen.precision.value if chosen.precision is not None else "",
        error=best.error if best is not None else None, eager_error=best.eager_error if best is not None else None,
        gained=Speedup.between(found.before, chosen.timing).median if found.before is not None else 1.0,
        unsplit=_unsplit(found),
    )  # fmt: skip


def _unsplit(found: TuningResult) -> float:
    """1 where the winner multiplies as eager may: in fp32, or in tf32 where that is eager's own."""
    chosen = found.chosen[0]
    if not EMULATED & {str(v) for v in chosen.configuration.values()} or chosen.timing is None:
        return 1.0
    plain = found.by_precision.get("ieee")
    timing = plain.timing if plain is not None else found.before
    return min(1.0, Speedup.between(chosen.timing, timing).median) if timing is not None else 1.0
