"""This process's memory and descriptors over many verdicts: good, wrong and crashing candidates in turn.

python -m bench.leak [--device cpu|cuda:0] [--candidates 1000] [--out bench/results/leak.md]
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from datetime import date
from pathlib import Path

from bench.judge_suites import problem_of

GOOD = Path(__file__).resolve().parents[1] / "tests" / "kernels"
CYCLE = ("good/row_sum.py", "good/fused_softmax.py", "bad/crash_abort.py", "good/vector_add.py")


def resident() -> int:
    """Bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--candidates", type=int, default=1000)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    from kernelwright.tools.pipeline import Evaluator, Options

    chosen = []
    for path in CYCLE:
        source = (GOOD / path).read_text()
        chosen.append((problem_of(source.split("# problem:", 1)[1].split()[0]), source))
    samples, start = [], time.monotonic()
    with Evaluator(asked.device, workers=1) as evaluator:
        for number in range(asked.candidates):
            evaluator.evaluate(*chosen[number % len(chosen)], Options(profile=False, torch_compile=False))
            if number % (asked.candidates // 10) == asked.candidates // 10 - 1:
                samples.append((number + 1, resident() >> 20, len(os.listdir("/proc/self/fd"))))
                print(samples[-1], file=sys.stderr, flush=True)
    seconds = time.monotonic() - start
    growth = samples[-1][1] - samples[1][1]
    lines = [
        "# The judge over many candidates",
        "",
        f"`python -m bench.leak --device {asked.device} --candidates {asked.candidates}`, {os.cpu_count()} "
        f"cores, {date.today().isoformat()}: "
        f"{asked.candidates / seconds:.1f} candidates a second, "
        "one after the other; from the second sample to the last "
        f"{growth} MiB.",
        "",
    ]
    lines += [
        "| candidates | resident MiB | open descriptors |",
        "|---|---|---|",
        *(f"| {n} | {m} | {f} |" for n, m, f in samples),
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    if asked.out:
        asked.out.write_text(text)


if __name__ == "__main__":
    main()
