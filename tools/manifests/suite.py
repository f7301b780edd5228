"""Measures manifests of a whole suite, each problem in a process which may be killed, so that a
broken or endless reference stops nothing. Resumable.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from kernelwright.tools.manifests.manifest import (
    TRIVIAL_ANSWERS,
    Manifest,
    read_manifests,
    write_manifests,
)
from kernelwright.tools.problem import Problem, ProblemError
from kernelwright.tools.report import InfrastructureError
from kernelwright.worker_process import WorkerDied, WorkerProcess, WorkerTimedOut

log = logging.getLogger(__name__)
Progress = Callable[[int, int, Manifest], None]
SAVE_EVERY = 10
START_SECONDS = 180


def compute_suite(
    problems: Iterable[Problem],
    device: str = "cpu",
    progress: Progress | None = None,
    *,
    sizes: str = "cpu",
    out: Path | None = None,
    seconds: float = 120.0,
) -> list[Manifest]:
    """Returns manifests in the problems' order.

    Manifests in `out` with the same hash and kind of device are reused; `out` is rewritten during
    the work.

    sizes: `full`, or `cpu` (`patient`: larger sizes), which runs each problem's own CPU shapes or
    a batch that fits; seconds: time limit per problem.
    """
    problem_list = list(problems)
    previous = read_manifests(out) if out and out.is_file() else []
    done = {m.hash: m for m in previous if (m.device == "cpu") == (device == "cpu")}
    worker = _Worker()
    try:
        for position, problem in enumerate(problem_list, 1):
            if problem.hash not in done or done[problem.hash].failure:
                done[problem.hash] = worker.ask(problem, device, sizes, seconds)
            if progress:
                progress(position, len(problem_list), done[problem.hash])
            if out and position % SAVE_EVERY == 0:
                write_manifests([done[p.hash] for p in problem_list if p.hash in done], out)
    finally:
        worker.close()
        if out and done:
            write_manifests([done[p.hash] for p in problem_list if p.hash in done], out)
    return [done[p.hash] for p in problem_list]


class _Worker:
    """Process which measures a problem after another; replaced after it was killed or died."""

    def __init__(self) -> None:
        self._process: WorkerProcess | None = None

    def ask(self, problem: Problem, device: str, sizes: str, seconds: float) -> Manifest:
        """Measures a problem's manifest; a manifest with a `failure` if the process died or was
        late.
        """
        process = self._process = self._started()
        start = time.monotonic()
        job = {"name": problem.name, "source": problem.source, "device": device, "sizes": sizes}
        try:
            return Manifest.model_validate_json(process.ask(json.dumps(job).encode(), seconds))
        except WorkerTimedOut:
            why = f"takes over {seconds:.0f} s"
        except WorkerDied as death:
            why = f"its process died ({death.exit_code})"
        self.close()
        failed = Manifest(problem=problem.name, hash=problem.hash, device=device)
        return failed.with_(failure=why, seconds=round(time.monotonic() - start, 2))

    def _started(self) -> WorkerProcess:
        if self._process is not None and self._process.alive:
            return self._process
        self.close()
        process = WorkerProcess("kernelwright.tools.manifests.worker")
        try:
            process.receive(START_SECONDS)
        except (WorkerDied, WorkerTimedOut) as error:
            process.close()
            raise InfrastructureError(
                f"the process that measures manifests does not start ({error}): see its output above"
            ) from error
        return process

    def close(self) -> None:
        """Ends the process, if any."""
        if self._process is not None:
            self._process.close()
            self._process = None


def suite_problems(suite: str, path: Path, levels: tuple[int, ...] = (1, 2, 3)) -> list[Problem]:
    """Reads the references of a KernelBench checkout (suite `kernelbench`) or of a folder of
    references (any other suite).

    Raises ProblemError if there are none.
    """
    if suite == "kernelbench":
        root = path / "KernelBench" if (path / "KernelBench").is_dir() else path
        files = [
            f
            for n in levels
            for f in sorted(
                (root / f"level{n}").glob("*_*.py"), key=lambda f: int(f.name.split("_")[0])
            )
        ]
        named = [
            (f"kernelbench:{f.parent.name.removeprefix('level')}/{f.name.split('_')[0]}", f)
            for f in files
        ]
    else:
        named = [(f.stem, f) for f in sorted(path.glob("[!_]*.py"))]
    if not named:
        raise ProblemError(
            f"no problems of the suite {suite} in {path}: give the folder that holds them"
        )
    return [Problem(name=name, source=file.read_text(), suite=suite) for name, file in named]


def manifest_suite(
    suite: str,
    path: Path,
    device: str = "cpu",
    out: Path | None = None,
    progress: Progress | None = None,
    *,
    seconds: float = 120.0,
    levels: tuple[int, ...] = (1, 2, 3),
    long_runs: bool = False,
) -> list[Manifest]:
    """Measures a suite's manifests, continuing an earlier run. Full sizes on a GPU, reduced sizes
    on a CPU.
    """
    if device != "cpu":
        import torch

        if not torch.cuda.is_available():
            raise InfrastructureError(f"no GPU for {device}: use --device cpu")
    sizes = "full" if device != "cpu" else "patient" if long_runs else "cpu"
    return compute_suite(
        suite_problems(suite, path, levels), device, progress, sizes=sizes, out=out, seconds=seconds
    )


def summary(manifests: list[Manifest]) -> list[str]:
    """The figures of a suite's manifests, a line each."""
    kb = [m for m in manifests if m.degenerate_kb]
    half = [
        m for m in manifests if any(m.passing[n].kb_half for n in TRIVIAL_ANSWERS if n in m.passing)
    ]
    ignored = [
        m
        for m in manifests
        if "ignored_weights" in m.passing and m.passing["ignored_weights"].kb_fp32
    ]
    lines = [
        f"{len(manifests)} problems, {sum(bool(m.failure) for m in manifests)} not measured",
        f"degenerate at 1e-4: {_count_and_names(kb)}",
        f"zeros pass at 1e-4: {_count_and_names([m for m in kb if 'zeros' in m.degenerate_kb])}",
        f"degenerate at 1e-2: {_count_and_names(half)}",
        "an input passes as the output: "
        f"{_count_and_names([m for m in manifests if any(n.startswith('input_') for n in m.dead)])}",
        f"ops that do nothing: {sum(n.startswith('without_') for m in manifests for n in m.dead)} in "
        f"{_count_and_names([m for m in manifests if any(n.startswith('without_') for n in m.dead)])}",
        f"weights may be ignored: {_count_and_names(ignored)}",
        f"no draw of ours tells: {_count_and_names([m for m in manifests if m.degenerate])}",
        f"random: {_count_and_names([m for m in manifests if m.random])}",
    ]
    return lines + [f"{m.problem}: {m.failure}" for m in manifests if m.failure]


def _count_and_names(manifests: list[Manifest]) -> str:
    return (
        f"{len(manifests)} ({' '.join(m.problem.removeprefix('kernelbench:') for m in manifests)})"
        if manifests
        else "none"
    )


def main(arguments: list[str] | None = None) -> None:
    """Measures the manifests of a suite: `python -m kernelwright.tools.manifests.manifest --help`."""
    import argparse

    parser = argparse.ArgumentParser(prog="python -m kernelwright.tools.manifests.manifest")
    parser.add_argument("--suite", default="kernelbench")
    parser.add_argument("--path", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=120.0, help="the most for one problem")
    parser.add_argument(
        "--patient", action="store_true", help="on a CPU, also what takes minutes a problem"
    )
    parser.add_argument("--levels", type=int, nargs="+", default=(1, 2, 3), help="of KernelBench")
    options = parser.parse_args(arguments)
    out: Any = options.out

    def report_progress(position: int, total: int, m: Manifest) -> None:
        sys.stderr.write(
            f"[{position}/{total}] {m.problem} {m.seconds} s {m.failure or ' '.join(m.passing)}\n"
        )

    manifests = manifest_suite(
        options.suite,
        options.path,
        options.device,
        out,
        report_progress,
        seconds=options.seconds,
        levels=tuple(options.levels),
        long_runs=options.patient,
    )
    for line in summary(manifests):
        sys.stdout.write(line + "\n")
