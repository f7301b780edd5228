"""What a verdict costs without a GPU: the commands from cold, and 100 candidates of the catalogue through the CPU rungs.

    python -m bench.cpu_rungs [--candidates 100] [--workers 2] [--repeat 5] [--out bench/cpu_rungs.md]

Wall times are medians; on a machine with other work beside it the processor time printed with them is what compares.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import NamedTuple

from bench.suite import KERNELS, header, honest, problem_of
from tools.problem import Problem

GOALS = {"agent --help": 0.4, "agent check, a good softmax": 8.0, "agent check, a syntax error": 1.0}


class Cost(NamedTuple):
    """Seconds of one command, children included."""

    wall: float
    processor: float


def command_cost(arguments: Sequence[str], repeat: int) -> Cost:
    """The median of `repeat` runs in fresh processes, each with a Triton cache of its own."""
    costs = []
    for _ in range(repeat):
        with tempfile.TemporaryDirectory() as cache:
            before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
            environment = {**os.environ, "TRITON_CACHE_DIR": cache}
            subprocess.run(
                [sys.executable, "-m", "agent", *arguments], env=environment, capture_output=True, check=False
            )
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            costs.append(Cost(time.monotonic() - start, spent))
    return Cost(*(statistics.median(values) for values in zip(*costs, strict=True)))


def commands(repeat: int) -> list[tuple[str, Cost]]:
    """The three that the project holds itself to."""
    with tempfile.TemporaryDirectory() as folder:
        broken = Path(folder) / "broken.py"
        broken.write_text("def forward(self x):\n    return x\n")
        softmax = str(KERNELS / "good" / "fused_softmax.py")
        asked = {
            "agent --help": ["--help"],
            "agent check, a good softmax": ["check", softmax, "--problem", "fused softmax"],
            "agent check, a syntax error": ["check", str(broken), "--problem", "fused softmax"],
        }
        return [(name, command_cost(arguments, repeat)) for name, arguments in asked.items()]


def candidates(count: int) -> list[tuple[Problem, str]]:
    """Honest and broken kernels of the catalogue in turn, as many as asked for."""
    good = [(problem_of(e.problem), e.source) for e in honest() if e.tried_on("cpu") and e.own_work == "strict"]
    slow = ("timeout", "memory")
    bad = [
        (problem_of(said["problem"]), path.read_text())
        for path in sorted((KERNELS / "bad").iterdir())
        if (said := header(path.read_text())).get("needs") != "gpu" and said["fault"] not in slow
    ]
    return [*good, *bad][:count]


def resident_of_family() -> int:
    """Bytes in RAM of this process and all below it, shared pages counted once each (PSS)."""
    total = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _descends(int(entry.name), os.getpid()):
            try:
                text = (entry / "smaps_rollup").read_text()
            except OSError:
                continue
            total += int(text.split("Pss:")[1].split()[0]) << 10
    return total


def _descends(pid: int, ancestor: int) -> bool:
    while pid > 1:
        if pid == ancestor:
            return True
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            return False
    return False


class Batch(NamedTuple):
    seconds: float
    processor: float
    outcomes: Counter[str]
    most_memory: int


def judge_all(chosen: list[tuple[Problem, str]], workers: int) -> Batch:
    """All through one warm Evaluator. The processes it forks are counted when they have ended."""
    from tools.pipeline import Evaluator, Options

    options, outcomes, most = (
        Options(profile=False, torch_compile=False, compile_seconds=30.0, seconds=30.0),
        Counter(),
        0,
    )
    start, before = time.monotonic(), sum(os.times()[:4])
    with Evaluator(device="cpu", workers=workers) as evaluator:
        for job in [evaluator.submit(problem, source, options) for problem, source in chosen]:
            report = job.result()
            outcomes[report.failure.fault if report.failure else "correct"] += 1
            most = max(most, resident_of_family())
        seconds = time.monotonic() - start
    return Batch(seconds, sum(os.times()[:4]) - before, outcomes, most)


def table(costs: list[tuple[str, Cost]], batch: Batch, asked: argparse.Namespace) -> str:
    count = sum(batch.outcomes.values())
    load = os.getloadavg()[1]
    lines = [
        "# What a verdict costs without a GPU",
        "",
        f"`python -m bench.cpu_rungs --candidates {asked.candidates} --workers {asked.workers}`, {os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}, {date.today().isoformat()}, load of the machine over the last five minutes {load:.1f}.",
        "",
        f"- {count} candidates of the catalogue through source, compile (sm_90) and interpreted rungs: **{count / batch.seconds:.2f} a second** ({batch.seconds:.0f} s with {asked.workers} workers, {batch.processor / count:.2f} s of processor time each), at most {batch.most_memory >> 20} MiB in all processes together.",
        f"- Of them: {', '.join(f'{fault} {n}' for fault, n in batch.outcomes.most_common())}.",
        "",
        "| command, cold | wall s | processor s | goal s |",
        "|---|---|---|---|",
    ]
    lines += [f"| {name} | {cost.wall:.2f} | {cost.processor:.2f} | {GOALS[name]:g} |" for name, cost in costs]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidates", type=int, default=100)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    text = table(commands(asked.repeat), judge_all(candidates(asked.candidates), asked.workers), asked)
    print(text)
    if asked.out:
        asked.out.write_text(text)


if __name__ == "__main__":
    main()
