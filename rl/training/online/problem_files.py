"""`rl data problems`: the generator's references as files, for `agent batch` and everything else that takes a
folder of problems.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kernelwright.errors import InputError
from kernelwright.rl.training.online.problem_source import HELD_OUT_SEED, generated


def write_problems(
    out: Path, n: int, kind: str, seed: int, against: Sequence[str] = ()
) -> list[Path]:
    """`n` files in KernelBench form, in a folder that is new or empty: all of them, or none.

    kind: `synth`, or `synth:SPLIT` as of a training online. Raises InputError.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} exists and is not empty: choose another --out")
    if seed >= HELD_OUT_SEED:
        raise InputError(
            f"--seed {seed}: seeds from {HELD_OUT_SEED} on are reserved for measuring: choose a smaller one"
        )
    found = list(itertools.islice(generated(kind, seed, against), n))
    there = out.resolve()
    there.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{there.name}.", dir=there.parent) as folder:
        for number, problem in enumerate(found, 1):
            name = f"{number:0{len(str(n))}d}_{problem.title.replace(' ', '_')}.py"
            Path(folder, name).write_text(problem.source, encoding="utf-8")
        there.mkdir(exist_ok=True)
        for file in sorted(Path(folder).iterdir()):
            file.rename(there / file.name)
    return sorted(out.iterdir())
