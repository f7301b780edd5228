"""Problems for each round: a function of the step alone, so that a resumed training sees the same ones."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from kernelwright.agent.export.training import BENCHMARK_SUITES
from kernelwright.errors import InputError
from kernelwright.tools.problem import Problem

SYNTH = "synth"
SECOND_ROUND_SEED = 500_000_009
"""Added to the seed for a step's second round."""
HELD_OUT_SEED = 1_000_003
"""Added to the seed for held-out problems: what is asked for by hand lies below."""


class ProblemSource:
    """Generated problems never come twice; a fixed list is gone through in a new order each time."""

    def __init__(self, asked: Sequence[str], seed: int, against: Sequence[str] = ()) -> None:
        """What is for measuring is left out: the known benchmarks, suites in `against`, problems that say they are held
        out.

        `synth`, `synth:SPLIT` (or its last word: `synth:depth`), `catalogue`, a folder, a file, a problem's name.
        Raises InputError, ProblemError.
        """
        self._seed, self._asked, self._against = seed, tuple(asked), tuple(against)
        self._lock = threading.Lock()
        own = {name: generated(name, seed, against) for name in asked if is_synth(name)}
        # A stream that is named twice gives twice as many, not the same ones again.
        self._streams = [own[name] for name in asked if name in own]
        self._drawn: list[Problem] = []
        self._more: ProblemSource | None = None
        fixed = [name for name in asked if not is_synth(name)]
        self._fixed = [
            p for p in _fixed(fixed) if p.suite not in BENCHMARK_SUITES and "held_out" not in p.tags
        ]
        if not self._streams and not self._fixed:
            raise InputError(
                "no problems to train on: name synth, catalogue, a folder, a file or problems with "
                "--problems (benchmarks are for "
                "measuring)"
            )

    def at(self, step: int, count: int) -> list[Problem]:
        """The problems of one step, from 0. Generated and fixed ones in turn where both are named. From any thread."""
        with self._lock:
            return self._at(step, count)

    def others(self, step: int, count: int) -> list[Problem]:
        """Returns problems of the same kinds, drawn with another seed."""
        with self._lock:
            if self._more is None:
                self._more = ProblemSource(
                    self._asked, self._seed + SECOND_ROUND_SEED, self._against
                )
        return self._more.at(step, count)

    def _at(self, step: int, count: int) -> list[Problem]:
        kinds = len(self._streams) + bool(self._fixed)
        of_streams = count * len(self._streams) // kinds
        start = step * of_streams
        while len(self._drawn) < start + of_streams:
            self._drawn.append(next(self._streams[len(self._drawn) % len(self._streams)]))
        chosen = self._drawn[start : start + of_streams]
        return chosen + self._from_fixed(step * (count - of_streams), count - of_streams)

    def _from_fixed(self, start: int, count: int) -> list[Problem]:
        found = []
        for place in range(start, start + count):
            epoch, at = divmod(place, len(self._fixed))
            order = list(range(len(self._fixed)))
            random.Random(f"{self._seed}/{epoch}").shuffle(order)
            found.append(self._fixed[order[at]])
        return list({problem.hash: problem for problem in found}.values())


def is_synth(name: str) -> bool:
    """Says whether a name asks for generated problems."""
    return name == SYNTH or name.startswith(f"{SYNTH}:")


def generated(name: str, seed: int, against: Sequence[str] = ()) -> Iterator[Problem]:
    """Draws generated problems without end. name: `synth`, `synth:SPLIT` or its last word. Raises InputError."""
    from kernelwright.rl.data.cleaning.suites import graphs_of
    from kernelwright.rl.data.rows import Split
    from kernelwright.rl.data.synth.engine.tasks import stream

    asked = name.partition(":")[2] or Split.TRAIN.value
    split = next(
        (split for split in Split if asked in (split.value, split.value.rpartition("_")[2])), None
    )
    split = split if is_synth(name) else None
    if split is None:
        forms = (f"synth:{split.value.removeprefix('held_out_')}" for split in Split)
        raise InputError(f"{name}: choose synth, {', '.join(forms)}")
    return (task.problem for task in stream(split, seed, graphs_of(*against)))


def _fixed(names: Sequence[str]) -> list[Problem]:
    if not names:
        return []
    from kernelwright.agent.batch.suite_choice import choose_problems

    return choose_problems(
        [str(Path(name).expanduser()) if "/" in name else name for name in names]
    )


def held_out(asked: Sequence[str], count: int, seed: int) -> dict[str, list[Problem]]:
    """Problems to measure on, by the name they were asked for.

    Generated ones are of a seed that no training draws from.
    """
    found: dict[str, list[Problem]] = {}
    for name in asked:
        if is_synth(name):
            found[name] = list(itertools.islice(generated(name, HELD_OUT_SEED + seed), count))
        else:
            found[name] = _fixed([name])[:count]
    return found
