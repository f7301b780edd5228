"""Where the seconds of a warm verdict go: sizes, trace, compilation, checks, the profile; and how much of it Triton
itself takes to compile the slowest kernel.

    python -m bench.verdict_phases --kernelbench DIR [--device cuda:0] [--candidates 24]

The candidates are the right ones of bench.verdicts, one after the other, each problem warmed by another candidate. A
phase's seconds are wall time in the judge's process. Compilation and tracing go on side by side, so that phases may add
up to more than the whole.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.verdict_candidates import entries, variants
from bench.verdicts import options_of_all, problems_of

WHOLE, TRITON = (
    "the whole verdict",
    "Triton's compilation of the slowest kernel of the problem's own size",
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kernelbench", type=Path, required=True)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--candidates", type=int, default=24)
    asked = parser.parse_args()
    print(table(measured(asked)))


class Phases:
    """Seconds and calls of methods, one verdict after the other."""

    def __init__(self) -> None:
        self.verdicts: list[dict[str, float]] = []
        self._seconds: dict[str, float] = defaultdict(float)

    def watch(self, owner: Any, method: str, phase: str) -> None:
        """From now on the method's calls are timed."""
        run = getattr(owner, method)

        def timed(*given: Any, **named: Any) -> Any:
            begun = time.perf_counter()
            try:
                return run(*given, **named)
            finally:
                self._seconds[phase] += time.perf_counter() - begun

        setattr(owner, method, timed)

    def ends(self, more: Mapping[str, float]) -> None:
        """A verdict is over. more: seconds of phases that were measured elsewhere."""
        self.verdicts.append({**self._seconds, **more})
        self._seconds.clear()

    def forget(self) -> None:
        """What was measured since the last verdict belongs to none."""
        self._seconds.clear()


def watched() -> Phases:
    """Phases over the classes of the judge, which stay changed for the life of this process."""
    import kernelwright.tools.evaluation.ladder as ladder
    from kernelwright.tools.judging.calls import CandidateCalls
    from kernelwright.tools.judging.examination import Examination
    from kernelwright.tools.judging.front import Front
    from kernelwright.tools.judging.judge import Judge
    from kernelwright.tools.judging.size_checks import SizeChecks

    phases = Phases()
    phases.watch(ladder, "select_sizes", "choosing sizes")
    phases.watch(Front, "traced_and_compiled", "trace and compilation")
    phases.watch(Front, "_trace", "of which until the problem's own size is compiled")
    phases.watch(Judge, "judge", "checks")
    phases.watch(Examination, "examine", "of which at the sizes with all or most of the checks")
    phases.watch(Examination, "examine_one_call", "of which at the other sizes")
    phases.watch(CandidateCalls, "open", "of which opening a size")
    phases.watch(CandidateCalls, "call", "of which calls of the candidate")
    phases.watch(SizeChecks, "compare", "of which comparisons")
    phases.watch(Judge, "profile", "profile")
    return phases


def measured(asked: argparse.Namespace) -> list[dict[str, float]]:
    """Phase -> seconds, a verdict each."""
    from kernelwright.tools.evaluation.pipeline import Evaluator

    chosen = [e for e in [*entries(), *variants(1)] if e.kind in ("correct", "slow")][
        : asked.candidates
    ]
    problems, options, phases = problems_of(asked, chosen), options_of_all(), watched()
    with Evaluator(asked.device) as evaluator:
        for problem in problems:
            one = next(e for e in variants(0) if e.problem == problem)
            evaluator.evaluate(problems[problem], one.source + "\n# warm", options)
        phases.forget()
        for entry in chosen:
            begun = time.perf_counter()
            report = evaluator.evaluate(problems[entry.problem], entry.source, options)
            slowest = (
                max((k.seconds for k in report.compiles[0].kernels), default=0.0)
                if report.compiles
                else 0.0
            )
            phases.ends({WHOLE: time.perf_counter() - begun, TRITON: slowest})
    return phases.verdicts


def table(verdicts: list[dict[str, float]]) -> str:
    """Median and 95th percentile of each phase."""
    names = sorted({name for one in verdicts for name in one}, key=lambda name: name != WHOLE)
    lines = [
        f"{len(verdicts)} verdicts",
        "",
        "| phase | median s | 95th percentile s |",
        "|---|---|---|",
    ]
    for name in names:
        seconds = sorted(one.get(name, 0.0) for one in verdicts)
        lines.append(
            f"| {name} | {statistics.median(seconds):.3f} | {seconds[int(0.95 * len(seconds))]:.3f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
