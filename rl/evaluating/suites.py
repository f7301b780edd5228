"""The problems that a policy is measured on."""

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
"""Tasks of a generated suite, unless another number is given."""
TASK_SEED = 20_261_121
"""The seed of the generated tasks. Training draws with small seeds; the splits do not overlap anyway."""


class Suite(NamedTuple):
    """Problems to be evaluated on."""

    name: str
    problems: tuple[Problem, ...]
    solutions: Mapping[str, str]
    """An answer known to be right, by the problem's name, where there is one."""


def open_suite(
    asked: str, n: int | None = None, level: int | None = None, seed: int = TASK_SEED
) -> Suite:
    """Opens a suite. `n`: only the first n problems. Raises InputError and ProblemError."""
    kind, _, rest = asked.partition(":")
    if kind == "synth":
        refuse_level(asked, level)
        return _synth(asked, rest, n or DEFAULT_TASKS, seed)
    if asked == "catalogue":
        return Suite(asked, tuple(load_suite(asked, level=level)[:n]), {})
    if kind == "kernelbench" and rest:
        name = f"kernelbench-level{level}" if level else "kernelbench"
        return Suite(name, tuple(load_suite("kernelbench", rest, level)[:n]), {})
    if kind == "tritonbench-t" and rest:
        return Suite(kind, tuple(load_suite(kind, rest, level)[:n]), {})
    if Path(asked).is_dir():
        return Suite(Path(asked).name, tuple(load_suite(asked, level=level)[:n]), {})
    raise InputError(f"--suite {asked!r}: choose {', '.join(SUITE_FORMS)}")


def _synth(asked: str, name: str, n: int, seed: int) -> Suite:
    from kernelwright.rl.data.synth.engine.tasks import tasks

    if name not in SYNTH_SPLITS:
        raise InputError(
            f"--suite {asked!r}: choose {', '.join(f'synth:{split}' for split in SYNTH_SPLITS)}"
        )
    found = tasks(SYNTH_SPLITS[name], n, seed)
    return Suite(
        asked,
        tuple(task.problem for task in found),
        {task.problem.name: task.solution for task in found},
    )
