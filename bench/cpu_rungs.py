"""What a verdict costs without a GPU: the commands from cold, and 100 candidates of the catalogue through the CPU
rungs.

    python -m bench.cpu_rungs [--candidates 100] [--workers 2] [--sizes 8] [--repeat 5]
        [--out bench/results/cpu_rungs.md]

Wall times are medians; on a machine with other work beside it the processor time printed with them is what compares.
That of the batch is counted by a control group where this process may make one: a process that is killed in a pid
namespace of its own takes its time with it, and is in no other count.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import NamedTuple

from bench.judge_suites import KERNELS, honest, problem_of
from kernelwright.tools.problem import Problem

GOALS = {
    "agent --help": 0.4,
    "agent check, a good softmax": 8.0,
    "agent check, a syntax error": 1.0,
}


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
                [sys.executable, "-m", "kernelwright.agent", *arguments],
                env=environment,
                capture_output=True,
                check=False,
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
    """The catalogue's honest kernels (tests/kernels/good), as many as asked for. Those of tests/honest are odd on
    purpose, and more of them every week: figures of different days would be figures of different work.
    """
    named = sorted(path.stem for path in (KERNELS / "good").glob("*.py"))
    tried = [e for e in honest(named) if e.path.parent == KERNELS / "good" and e.tried_on("cpu")]
    return [(problem_of(e.problem), e.source) for e in tried if e.own_work == "strict"][:count]


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


MEMORY_EVERY = 10
"""Verdicts between two looks at the memory of all processes."""
GROUP_SECONDS = 5.0
"""Seconds that the processes of a batch are given to be gone, before the control group is left behind."""
ACCOUNT = Path("/sys/fs/cgroup/cpuacct") / f"kernelwright-bench-{os.getpid()}"


@contextlib.contextmanager
def counting_processor_time() -> Iterator[None]:
    """Inside, `processor_time` counts all that this process starts, killed or not, where this host lets us count it.
    Nothing that was started may be left at the end.
    """
    try:
        own = next(
            line for line in Path("/proc/self/cgroup").read_text().splitlines() if "cpuacct" in line
        )
        before = ACCOUNT.parent / own.split(":", 2)[2].lstrip("/")
        ACCOUNT.mkdir()
        (ACCOUNT / "cgroup.procs").write_text(str(os.getpid()))
    except (OSError, StopIteration):
        yield
        return
    try:
        yield
    finally:
        (before / "cgroup.procs").write_text(str(os.getpid()))
        deadline = time.monotonic() + GROUP_SECONDS
        while not _removed(ACCOUNT) and time.monotonic() < deadline:
            time.sleep(0.05)


def _removed(group: Path) -> bool:
    try:
        group.rmdir()
    except OSError:  # processes that were killed are not reaped yet
        return False
    return True


def processor_time() -> float | None:
    """Seconds, of this process and all that it has started; None where that cannot be counted."""
    try:
        return int((ACCOUNT / "cpuacct.usage").read_text()) / 1e9
    except OSError:
        return None


class Batch(NamedTuple):
    start: float
    """Until the Evaluator had made a first verdict."""
    seconds: float
    processor: float | None
    outcomes: Counter[str]
    most_memory: int


def judge_all(chosen: list[tuple[Problem, str]], workers: int, sizes: int) -> Batch:
    """All through one warm Evaluator; the first is judged before, as a start, and not counted.

    Memory is looked at after every tenth, which takes a tenth of a second.
    """
    from kernelwright.tools.evaluation.pipeline import Evaluator, Options

    options = Options(
        profile=False, torch_compile=False, compile_seconds=30.0, seconds=30.0, sizes=sizes
    )
    outcomes, most = Counter[str](), 0
    cold = time.monotonic()
    with counting_processor_time(), Evaluator(device="cpu", workers=workers) as evaluator:
        evaluator.evaluate(*chosen[0], options)
        before, start = processor_time(), time.monotonic()
        jobs = [evaluator.submit(problem, source, options) for problem, source in chosen[1:]]
        for number, job in enumerate(jobs, 1):
            report = job.result()
            outcomes[report.failure.fault if report.failure else "correct"] += 1
            if number % MEMORY_EVERY == 0:
                most = max(most, resident_of_family())
        seconds, after = time.monotonic() - start, processor_time()
    processor = None if after is None or before is None else after - before
    return Batch(start - cold, seconds, processor, outcomes, most)


def table(costs: list[tuple[str, Cost]], batch: Batch, asked: argparse.Namespace) -> str:
    count = sum(batch.outcomes.values())
    load = os.getloadavg()[1]
    each = (
        f", {batch.processor / count:.2f} s of processor time each"
        if batch.processor is not None
        else ""
    )
    lines = [
        "# What a verdict costs without a GPU",
        "",
        f"`python -m bench.cpu_rungs --candidates {asked.candidates} --workers {asked.workers} --sizes "
        f"{asked.sizes}`, {os.cpu_count()} cores "
        f"({platform.machine()}), Python "
        f"{platform.python_version()}, {date.today().isoformat()}, "
        "load of the machine over the last five minutes "
        f"{load:.1f}.",
        "",
        f"- {count} candidates of the catalogue through source, compile (sm_90) and interpreted rungs: "
        f"**{count / batch.seconds:.2f} a second** "
        f"({batch.seconds:.0f} s with {asked.workers} "
        f"workers{each}; {batch.start:.0f} s before, to start and "
        f"for a first verdict), at most {batch.most_memory >> 20} "
        "MiB in all processes "
        "together.",
        f"- Of them: {', '.join(f'{fault} {n}' for fault, n in batch.outcomes.most_common())}.",
        "",
        "| command, cold | wall s | processor s | goal s |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {name} | {cost.wall:.2f} | {cost.processor:.2f} | {GOALS[name]:g} |"
        for name, cost in costs
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--candidates", type=int, default=100)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--sizes",
        type=int,
        default=8,
        help="other sizes that each must be right at; 3 for rollouts",
    )
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    text = table(
        commands(asked.repeat),
        judge_all(candidates(asked.candidates), asked.workers, asked.sizes),
        asked,
    )
    print(text)
    if asked.out:
        asked.out.write_text(text)


if __name__ == "__main__":
    main()
