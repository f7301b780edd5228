"""The compiler's drafts beside `torch.compile(mode="max-autotune-no-cudagraphs")`: KernelBench problems on one GPU.

    python -m bench.max_autotune DIR --level 2 --rows bench/results/compiler_drafts-level2-gpu.json [--device cuda:0]
        [--workers 8] [--problems 20] [--seconds 150] [--out bench/results/max_autotune]

DIR is a checkout of KernelBench; the rows are those of bench.compiler_drafts on the same kind of GPU. Eager and the
compiled model are timed in turns as CUDA graphs by the judge's own clock, in one process per problem; one process at a
time does so, also while the compiler tries its configurations there. The draft's time over the compiled model's is the
product of two ratios to eager by one method, the judge's own and this one. Problems are taken evenly over the level;
those that were not begun after --seconds are left out. Rows are written as they are made.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

from bench.compiler_drafts import machine_of
from bench.compiler_drafts_table import Row, best_of_modes, geometric_mean
from kernelwright.agent.batch.suite_choice import choose_problems
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Speedup, TimingMethod
from kernelwright.tools.timing.compiled_reference import Baseline, CompiledReference

MODE = "max-autotune-no-cudagraphs"


def alone_on_the_gpu(lock: Any) -> None:
    """The compiler's trials of configurations wait for their turn. Private functions of Inductor, of torch 2.11."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner
    from torch._inductor.select_algorithm import AlgorithmSelectorCache

    def waiting(function: Callable[..., Any]) -> Callable[..., Any]:
        def turn(*args: Any, **kwargs: Any) -> Any:
            with lock:
                return function(*args, **kwargs)

        return turn

    own: Any = AlgorithmSelectorCache
    own.benchmark_choices = classmethod(waiting(own.benchmark_choices.__func__))
    tuner: Any = CachingAutotuner
    tuner.benchmark_all_configs = waiting(tuner.benchmark_all_configs)


def measure(path: str, lock_path: str, device: str) -> Baseline:
    """Eager and the compiled model, on the problem's own inputs, as CUDA graphs where both can be captured."""
    import torch
    from filelock import FileLock

    torch.cuda.set_device(device)
    lock = FileLock(lock_path)
    alone_on_the_gpu(lock)
    problem = Problem(name=Path(path).stem, source=Path(path).read_text(encoding="utf-8"))
    reference = CompiledReference(problem, device, mode=MODE)
    with lock:
        return reference.time(TimingMethod.GRAPH)


def chosen(
    rows: Sequence[Row], problems: Sequence[Problem], count: int
) -> list[tuple[Row, Problem]]:
    """Evenly over the problems whose best draft is right and does the same work."""
    by_title = {p.title or p.name: p for p in problems}
    best = [r for r in best_of_modes(rows) if not r.apart and r.problem in by_title]
    step = max(1.0, len(best) / count)
    return [
        (row, by_title[row.problem])
        for row in (best[int(i * step)] for i in range(min(count, len(best))))
    ]


def run(
    row: Row, problem: Problem, folder: Path, device: str, ends: float
) -> dict[str, Any] | None:
    """The row beside what was measured; None where it was not begun, or not ended, in time."""
    if (left := ends - time.monotonic()) < 1.0:
        return None
    path = folder / f"{row.problem}.py"
    path.write_text(problem.source, encoding="utf-8")
    command = [sys.executable, "-m", "bench.max_autotune", "--one", str(path), "--device", device]
    environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "4"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=left + 30, env=environment, check=False,
        )  # fmt: skip
        measured = Baseline.model_validate_json(done.stdout.strip().splitlines()[-1])
    except subprocess.TimeoutExpired:
        return None
    except (IndexError, ValueError):
        return {
            "problem": row.problem,
            "failure": (done.stderr.strip().splitlines() or ["nothing was printed"])[-1],
        }
    return beside(row, measured)


def beside(row: Row, measured: Baseline) -> dict[str, Any]:
    """The draft's row beside the compiled model. No ratio of the two where they were not timed by one method."""
    assert measured.eager is not None
    assert measured.compiled is not None
    over_eager = Speedup.between(measured.eager, measured.compiled).median
    alike = (row.method or TimingMethod.GRAPH) is measured.compiled.method
    over_max_autotune = (row.speedup or 0.0) / over_eager if alike else None
    return {
        "problem": row.problem, "mode": row.mode.value, "method": str(measured.compiled.method),
        "eager_ms": measured.eager.median, "max_autotune_ms": measured.compiled.median,
        "compiled_host_ms": measured.compiled_host_ms, "max_autotune_over_eager": over_eager,
        "draft_over_eager": row.speedup, "draft_over_max_autotune": over_max_autotune, "note": measured.note,
    }  # fmt: skip


def text(rows: Sequence[dict[str, Any]], command: str, machine: str) -> str:
    """Writes the result as Markdown."""
    right = [r for r in rows if "failure" not in r]
    over, drafts, compiled = (
        geometric_mean(r[name] for r in right)
        for name in ("draft_over_max_autotune", "draft_over_eager", "max_autotune_over_eager")
    )
    lines = [
        f"# The compiler's drafts beside `{MODE}`", "", f"`{command}`, {machine}.", "",
        f"{len(right)} problems: the drafts {over} times as fast by geometric mean ({drafts} and {compiled} times "
        "eager).", "",
        "| problem | mode | eager ms | max-autotune ms | max-autotune over eager | draft over eager | draft over "
        "max-autotune |", "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for r in rows:
        if "failure" in r:
            lines.append(f"| {r['problem']} | not compiled: {r['failure'][:120]} | | | | | |")
            continue
        lines.append(
            f"| {r['problem']} | {r['mode']} | {r['eager_ms']:.3f} | {r['max_autotune_ms']:.3f} "
            f"| {r['max_autotune_over_eager']:.2f} | {r['draft_over_eager']:.2f} "
            f"| {_ratio(r['draft_over_max_autotune'])} |"
        )
    return "\n".join(lines) + "\n"


def _ratio(value: float | None) -> str:
    return f"{value:.2f}" if value is not None else "not timed alike"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--level", type=int)
    parser.add_argument("--rows", type=Path)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--problems", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=150.0)
    parser.add_argument("--out", type=Path, default=Path("bench/results/max_autotune"))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    asked = parser.parse_args(argv)
    if asked.one:
        print(
            measure(
                asked.one, str(Path(asked.one).parent / "gpu.lock"), asked.device
            ).model_dump_json()
        )
        return 0
    if not asked.folder or asked.rows is None:
        parser.error("a checkout of KernelBench and --rows are needed")
    given = [Row.model_validate(r) for r in json.loads(asked.rows.read_text(encoding="utf-8"))]
    pairs = chosen(given, choose_problems([asked.folder], level=asked.level), asked.problems)
    ends, rows = time.monotonic() + asked.seconds, []
    machine = f"{machine_of(asked.device)}, {date.today().isoformat()}"
    command = "python -m bench.max_autotune " + " ".join(argv or sys.argv[1:])
    with (
        tempfile.TemporaryDirectory(prefix="max-autotune-") as folder,
        ThreadPoolExecutor(asked.workers) as pool,
    ):
        made = [
            pool.submit(run, row, problem, Path(folder), asked.device, ends)
            for row, problem in pairs
        ]
        for number, future in enumerate(made, 1):
            if (found := future.result()) is not None:
                rows.append(found)
                print(f"{number}/{len(made)} {json.dumps(found)}", flush=True)
                asked.out.with_suffix(".md").write_text(
                    text(rows, command, machine), encoding="utf-8"
                )
    return 0 if rows else 1


if __name__ == "__main__":
    raise SystemExit(main())
