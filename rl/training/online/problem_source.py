"""Problems of each round: a function of the step alone, so a resumed training sees the same
problems.

Example: 4 problems a step from `synth` and a folder with 3 files. Step 0 has generated problems 0
and 1 and files 0 and 1 of the first shuffled pass; step 1 has generated problems 2 and 3, file 2,
and file 0 of the next pass.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kernelwright.agent.export.training import BENCHMARK_SUITES
from kernelwright.errors import InputError
from kernelwright.tools.problem import Problem

if TYPE_CHECKING:
    from kernelwright.rl.data.rows import Split

SYNTH = "synth"
SECOND_ROUND_SEED = 500_000_009
"""Added to the seed for a step's second round."""
HELD_OUT_SEED = 1_000_003
"""Added to the seed for held-out problems; a user's seeds are smaller."""


class ProblemSource:
    """Generated problems without repetition, and passes over a fixed list, each in a new order."""

    def __init__(self, names: Sequence[str], seed: int, against: Sequence[str] = ()) -> None:
        """Opens the named problems: `synth`, `synth:SPLIT` (or its last word: `synth:depth`),
        `catalogue`, a folder, a file, a problem's name.

        Problems for measuring are left out: the known benchmarks, suites in `against`, problems
        tagged as held out. Raises InputError, ProblemError.
        """
        self._names = tuple(names)
        self._seed = seed
        self._against = tuple(against)
        self._lock = threading.Lock()
        streams = {name: generated(name, seed, against) for name in names if is_synth(name)}
        # A stream named twice is the same iterator twice: twice as many problems, none repeated.
        self._streams = [streams[name] for name in names if name in streams]
        self._drawn: list[Problem] = []
        self._second_source: ProblemSource | None = None
        fixed = _fixed([name for name in names if not is_synth(name)])
        self._fixed = [problem for problem in fixed if _is_for_training(problem)]
        if not self._streams and not self._fixed:
            raise InputError(
                "no problems to train on: name synth, catalogue, a folder, a file or problems with "
                "--problems (benchmarks are for measuring)"
            )

    def at(self, step: int, count: int) -> list[Problem]:
        """Returns the problems of a step, from 0, alternating between generated and fixed
        problems if both are named. Callable from any thread.
        """
        with self._lock:
            return self._at(step, count)

    def replacements(self, step: int, count: int) -> list[Problem]:
        """Returns problems of the same kinds, drawn with another seed."""
        with self._lock:
            if self._second_source is None:
                self._second_source = ProblemSource(
                    self._names, self._seed + SECOND_ROUND_SEED, self._against
                )
        return self._second_source.at(step, count)

    def _at(self, step: int, count: int) -> list[Problem]:
        kinds = len(self._streams) + bool(self._fixed)
        of_streams = count * len(self._streams) // kinds
        # The stream's problems of this step; earlier ones are drawn if a resumed training begins
        # later.
        start = step * of_streams
        while len(self._drawn) < start + of_streams:
            self._drawn.append(next(self._streams[len(self._drawn) % len(self._streams)]))
        chosen = self._drawn[start : start + of_streams]
        return chosen + self._from_fixed(step * (count - of_streams), count - of_streams)

    def _from_fixed(self, start: int, count: int) -> list[Problem]:
        """Returns problems `start` to `start + count` of endless passes over the list, without
        repetition.
        """
        problems = []
        for position in range(start, start + count):
            epoch, index = divmod(position, len(self._fixed))
            order = list(range(len(self._fixed)))
            # Each pass over the list has its own order, a function of the seed and the pass.
            random.Random(f"{self._seed}/{epoch}").shuffle(order)
            problems.append(self._fixed[order[index]])
        return list({problem.hash: problem for problem in problems}.values())


def is_synth(name: str) -> bool:
    """Returns whether a name stands for generated problems."""
    return name == SYNTH or name.startswith(f"{SYNTH}:")


def generated(name: str, seed: int, against: Sequence[str] = ()) -> Iterator[Problem]:
    """Draws generated problems without end. name: `synth`, `synth:SPLIT` or its last word. Raises
    InputError.
    """
    from kernelwright.rl.data.cleaning.suites import graphs_of
    from kernelwright.rl.data.rows import Split
    from kernelwright.rl.data.synth.engine.tasks import stream

    split = _split_named(name)
    if split is None:
        forms = (f"synth:{split.value.removeprefix('held_out_')}" for split in Split)
        raise InputError(f"{name}: choose synth, {', '.join(forms)}")
    return (task.problem for task in stream(split, seed, graphs_of(*against)))


def _is_for_training(problem: Problem) -> bool:
    return problem.suite not in BENCHMARK_SUITES and "held_out" not in problem.tags


def _split_named(name: str) -> Split | None:
    """Returns the split of `synth`, `synth:SPLIT` or `synth:LASTWORD`; None for another name."""
    from kernelwright.rl.data.rows import Split

    if not is_synth(name):
        return None
    split_name = name.partition(":")[2] or Split.TRAIN.value
    for split in Split:
        if split_name in (split.value, split.value.rpartition("_")[2]):
            return split
    return None


def _fixed(names: Sequence[str]) -> list[Problem]:
    if not names:
        return []
    from kernelwright.agent.batch.suite_choice import choose_problems

    return choose_problems(
        [str(Path(name).expanduser()) if "/" in name else name for name in names]
    )


def held_out(names: Sequence[str], count: int, seed: int) -> dict[str, list[Problem]]:
    """Returns problems for measuring, by the requested name.

    Generated problems have a seed outside every training's seeds.
    """
    problems: dict[str, list[Problem]] = {}
    for name in names:
        if is_synth(name):
            problems[name] = list(itertools.islice(generated(name, HELD_OUT_SEED + seed), count))
        else:
            problems[name] = _fixed([name])[:count]
    return problems
