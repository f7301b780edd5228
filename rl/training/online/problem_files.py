"""`rl data problems`: writes the generator's references as files, for `agent batch` and other
readers of a folder of problems.
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
    """Writes `n` files in KernelBench form into a new or empty folder: all of them, or none.

    kind: `synth`, or `synth:SPLIT` as for online training. Raises InputError.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} exists and is not empty: choose another --out")
    if seed >= HELD_OUT_SEED:
        raise InputError(
            f"--seed {seed}: seeds from {HELD_OUT_SEED} on are reserved for measuring: choose a smaller one"
        )
    problems = list(itertools.islice(generated(kind, seed, against), n))
    target = out.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    # Written beside the target and renamed, so an interruption leaves no half set.
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as folder:
        for number, problem in enumerate(problems, 1):
            name = f"{number:0{len(str(n))}d}_{problem.title.replace(' ', '_')}.py"
            Path(folder, name).write_text(problem.source, encoding="utf-8")
        target.mkdir(exist_ok=True)
        for file in sorted(Path(folder).iterdir()):
            file.rename(target / file.name)
    return sorted(out.iterdir())
