"""What judging leaves behind: memory of the judge's process and of all below it, processes, descriptors and the GPU's
memory over many verdicts. Good, wrong, crashing and broken candidates in turns.

    python -m bench.leak [--device cpu|cuda:0] [--candidates 3000] [--sizes 1] [--workers 2]
                         [--out bench/results/leak.md]

Every tenth verdict is about a text of its own, so that kernels are compiled anew all the while.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

from bench.cpu_rungs import resident_of_family
from bench.judge_suites import problem_of

KERNELS = Path(__file__).resolve().parents[1] / "tests" / "kernels"
CYCLE = (
    "good/row_sum.py",
    "good/fused_softmax.py",
    "bad/crash_abort.py",
    "good/vector_add.py",
    "broken",
)
SAMPLES = 10
FRESH_EVERY = 10


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--candidates", type=int, default=3000)
    parser.add_argument("--sizes", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    samples, seconds = judged(asked)
    text = table(asked, samples, seconds)
    print(text)
    if asked.out:
        asked.out.write_text(text)


def candidate(number: int) -> tuple[str, str]:
    """Problem and text of the candidate of this number."""
    name = CYCLE[number % len(CYCLE)]
    source = (KERNELS / (CYCLE[0] if name == "broken" else name)).read_text()
    if name == "broken":
        source = source.replace("tl.sum(", "tl.no_such_function(", 1)
    if number % FRESH_EVERY == 0:
        source += f"\n# {number}\n"
        source = source.replace("tl.program_id(0)", f"(tl.program_id(0) + 0 * {number})", 1)
    return source.split("# problem:", 1)[1].split()[0], source


def judged(asked: argparse.Namespace) -> tuple[list[dict[str, int]], float]:
    """What was found after each tenth of the verdicts, and the seconds of all."""
    from kernelwright.tools.evaluation.pipeline import Evaluator, Options

    options = Options(profile=False, torch_compile=False, sizes=asked.sizes)
    samples, begun = list[dict[str, int]](), time.monotonic()
    with (
        Evaluator(asked.device, workers=asked.workers) as evaluator,
        ThreadPoolExecutor(asked.workers) as places,
    ):

        def judge(number: int) -> bool:
            problem, source = candidate(number)
            return evaluator.evaluate(problem_of(problem), source, options).correct

        each = max(1, asked.candidates // SAMPLES)
        for first in range(0, asked.candidates, each):
            numbers = range(first, min(first + each, asked.candidates))
            right = sum(places.map(judge, numbers))
            samples.append({"verdicts": numbers[-1] + 1, "right": right, **held(asked.device)})
            print(samples[-1], file=sys.stderr, flush=True)
    return samples, time.monotonic() - begun


def held(device: str) -> dict[str, int]:
    """Memory in MiB, processes and descriptors at this moment."""
    found = {
        "own": int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        >> 20,
        "family": resident_of_family() >> 20,
        "processes": len(descendants()),
        "descriptors": len(os.listdir("/proc/self/fd")),
    }
    if device != "cpu":
        import torch

        free, total = torch.cuda.mem_get_info(device)
        found["gpu"] = (total - free) >> 20
    return found


def descendants() -> list[int]:
    """Processes below this one."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int(
                    (entry / "stat").read_text().rpartition(")")[2].split()[1]
                )
            except OSError:
                continue
    found, waiting = [], [os.getpid()]
    while waiting:
        children = [pid for pid, parent in parents.items() if parent == waiting[-1]]
        waiting.pop()
        found += children
        waiting += children
    return found


def table(asked: argparse.Namespace, samples: list[dict[str, int]], seconds: float) -> str:
    names = [name for name in samples[0] if name not in ("verdicts", "right")]
    titles = {
        "own": "judge's process, MiB", "family": "with all below it, MiB", "processes": "processes below it",
        "descriptors": "descriptors", "gpu": "GPU in use, MiB",
    }  # fmt: skip
    growth = ", ".join(f"{titles[n]} {samples[-1][n] - samples[1][n]:+d}" for n in names)
    where = "" if asked.device == "cpu" else f" --device {asked.device}"
    lines = [
        "# The judge over many candidates", "",
        f"`python -m bench.leak{where} --candidates {asked.candidates} --sizes {asked.sizes} --workers "
        f"{asked.workers}`, {os.cpu_count()} cores, {date.today().isoformat()}: {asked.candidates / seconds:.1f} "
        f"verdicts a second, {sum(s['right'] for s in samples)} of them right. From the second sample to the last: "
        f"{growth}.", "",
        f"| verdicts | {' | '.join(titles[n] for n in names)} |", f"|---|{'---|' * len(names)}",
    ]  # fmt: skip
    lines += [f"| {s['verdicts']} | {' | '.join(str(s[n]) for n in names)} |" for s in samples]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
