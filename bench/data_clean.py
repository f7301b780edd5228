"""How long `rl data clean` takes for 50,000 generated rows, duplicates and leakage without labels.

Writes bench/results/data_clean.md.

python -m bench.data_clean [--rows 50000] [--workers 2] [--against kernelbench:DIR]
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import resource
import tempfile
import time
from collections.abc import Iterator
from datetime import date
from itertools import islice
from pathlib import Path

from kernelwright.rl.data.cleaning.running import CleaningResult, clean_corpus
from kernelwright.rl.data.rows import Kind, Row, Split, row_of, write_rows
from kernelwright.rl.data.synth.engine.mistakes import make_mistakes
from kernelwright.rl.data.synth.engine.tasks import stream
from kernelwright.rl.data.synth.engine.verifying import prompt_of

PAGE = Path(__file__).parent / "results" / "data_clean.md"


def rows() -> Iterator[Row]:
    """Drawn, not judged: drafts, and broken kernels with a made-up message."""
    for task in stream(Split.TRAIN, seed=1):
        facts = {
            "reference": task.problem.source,
            "family": task.family,
            "problem": task.problem.name,
            "source": "synth",
        }
        prompt = prompt_of(task)
        yield row_of(Kind.DRAFT, prompt, task.solution, **facts)
        for name, code in make_mistakes(task.solution, random.Random(task.problem.name), 2):
            yield row_of(
                Kind.REPAIR,
                f"repair{prompt.removeprefix('draft')}\n# candidate\n{code}\n# compile: {name}",
                task.solution,
                **facts,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--against", action="append", default=[])
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic()
        source = Path(folder, "in")
        write_rows(source, islice(rows(), asked.rows))
        drawn = time.monotonic() - start
        size = sum(path.stat().st_size for path in source.glob("*.parquet"))
        result = clean_corpus(
            source,
            Path(folder, "out"),
            asked.against,
            asked.workers,
            lambda step: print(step, flush=True),
        )
    own, children = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    PAGE.write_text(page(result, drawn, size, own, children), encoding="utf-8")
    print(PAGE.read_text(encoding="utf-8"))


def page(
    result: CleaningResult,
    drawn: float,
    size: int,
    own: resource.struct_rusage,
    children: resource.struct_rusage,
) -> str:
    suites = ", ".join(f"{count} problems of {name}" for name, count in result.against.items())
    facts = (
        ("rows", f"{result.rows:,} ({size / 1e6:.0f} MB of parquet), drawn in {drawn:.0f} s"),
        ("held against", suites),
        ("wall", f"{result.seconds:.0f} s with {result.workers} processes, {result.rows / result.seconds:,.0f} "
        "rows a second"),
        ("processor",
        f"{children.ru_utime + children.ru_stime:.0f} s in the processes, "
        f"{own.ru_utime + own.ru_stime:.0f} s in the one that writes (drawing included)"),
        ("memory", f"{own.ru_maxrss / 1024:.0f} MiB at most in the one that writes, "
        f"{children.ru_maxrss / 1024:.0f} MiB in each other"),
        ("kept", f"{result.kept:,}; {result.exact:,} exact and {result.near:,} near duplicates, {result.leaked:,} "
        f"a benchmark's, {result.flagged:,} flagged"),
        ("distinct dataflow graphs", f"{result.graphs:,}"),
        ("load of the machine", f"{os.getloadavg()[2]:.1f} over 15 minutes on {os.cpu_count()} cores"),
    )  # fmt: skip
    table = "\n".join(f"| {name} | {value} |" for name, value in facts)
    return (
        "# rl data clean\n\n`python -m bench.data_clean`: normalisation, exact and near duplicates, "
        "leakage; no labels. "
        f"{date.today()}, Python {platform.python_version()}.\n\n| | |\n|---|---|\n{table}\n"
    )


if __name__ == "__main__":
    main()
