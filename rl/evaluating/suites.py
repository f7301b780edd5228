"""Opens the problems of an evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from kernelwright.agent.problems.finding import load_suite, refuse_level
from kernelwright.errors import InputError
from kernelwright.rl.data.rows import Split
from kernelwright.tools.problem import Problem

SYNTH_SPLITS = {
    "composition": Split.HELD_OUT_COMPOSITION,
    "depth": Split.HELD_OUT_DEPTH,
    "family": Split.HELD_OUT_FAMILY,
    "train": Split.TRAIN,
}
SUITE_FORMS = (
    *(f"synth:{name}" for name in SYNTH_SPLITS),
    "catalogue",
    "kernelbench:DIR",
    "tritonbench-t:DIR",
    "a folder of problems",
)
DEFAULT_TASKS = 128
"""Number of tasks of a generated suite, unless specified."""
TASK_SEED = 20_261_121
"""The seed of the generated tasks. Training uses small seeds; the splits do not overlap anyway."""


class Suite(NamedTuple):
    """Problems for an evaluation."""

    name: str
    problems: tuple[Problem, ...]
    solutions: Mapping[str, str]
    """A known correct answer by the problem's name, if available."""


def open_suite(
    form: str, n: int | None = None, level: int | None = None, seed: int = TASK_SEED
) -> Suite:
    """Opens a suite. `n`: only the first n problems. Raises InputError and ProblemError."""
    kind, _, detail = form.partition(":")
    # Generated problems have no levels.
    if kind == "synth":
        refuse_level(form, level)
        return _synth(form, detail, n or DEFAULT_TASKS, seed)
    if form == "catalogue":
        return Suite(form, tuple(load_suite(form, level=level)[:n]), {})
    if kind == "kernelbench" and detail:
        name = f"kernelbench-level{level}" if level else "kernelbench"
        return Suite(name, tuple(load_suite("kernelbench", detail, level)[:n]), {})
    if kind == "tritonbench-t" and detail:
        return Suite(kind, tuple(load_suite(kind, detail, level)[:n]), {})
    if Path(form).is_dir():
        return Suite(Path(form).name, tuple(load_suite(form, level=level)[:n]), {})
    raise InputError(f"--suite {form!r}: choose {', '.join(SUITE_FORMS)}")


def _synth(form: str, name: str, n: int, seed: int) -> Suite:
    from kernelwright.rl.data.synth.engine.tasks import tasks

    if name not in SYNTH_SPLITS:
        raise InputError(
            f"--suite {form!r}: choose {', '.join(f'synth:{split}' for split in SYNTH_SPLITS)}"
        )
    drawn = tasks(SYNTH_SPLITS[name], n, seed)
    return Suite(
        form,
        tuple(task.problem for task in drawn),
        {task.problem.name: task.solution for task in drawn},
    )
