"""torch.compile timed by events with its host code (as before report version 3) and as a CUDA graph (as since), beside
eager and a draft of ours: KernelBench problems, in one call on one GPU.

    python -m bench.compile_clock DIR --drafts FOLDER [--level 1 --level 2] [--device cuda:0] [--seconds 390] [--seed 0]
        [--workers 12] [--compilers 5] [--limit N] [--rows JSON ...] [--out bench/results/compile_clock]

DIR is a checkout of KernelBench. FOLDER holds the drafts of `bench.compiler_drafts DIR --draft-only --keep FOLDER`, one
or both modes of a problem; the strict one is taken where both are there. Problems come in an order that is drawn from
the seed and balanced over levels and kinds (convolutions, products, others), and none is begun after --seconds: those
that were begun are a stratified sample. `--rows` are stored results of bench.compiler_drafts: their drafts whose speed
is no speed of the same work (exact algebra, degenerate problems) are left out of the means.

OUT.json holds a row of each problem, OUT.md the means; both are written again after every problem.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from datetime import date
from pathlib import Path

from bench.compiler_drafts import RULES, kept_draft_path, machine_of
from bench.compiler_drafts_table import Row, geometric_mean
from kernelwright.agent.batch.suite_choice import choose_problems
from kernelwright.policies.inductor.draft import DraftMode
from kernelwright.tools.evaluation.pipeline import Evaluator
from kernelwright.tools.options import Options
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import ProfileResult, Report, Speedup, TimingMethod, Value
from kernelwright.tools.timing.baseline import Baselines
from kernelwright.tools.timing.compiled_reference import Baseline
from kernelwright.tools.timing.extras import compared_with

METHODS = (TimingMethod.GRAPH, TimingMethod.WITH_HOST)
GOAL = 1.1
"""Of `--goal compile:1.1`, the example of the documentation."""


class ClockRow(Value):
    """One problem."""

    problem: str
    level: str
    apart: bool = False
    """Whether the draft's speed is no speed of the same work."""
    mode: DraftMode | None = None
    correct: bool = False
    reason: str = ""
    """Why there is no time, or no comparable one."""
    profile: ProfileResult | None = None
    """The draft's, with torch.compile by the candidate's method."""
    graph: Baseline | None = None
    with_host: Baseline | None = None

    @property
    def overstated(self) -> float | None:
        """Eager's time over torch.compile's as graphs, over the same ratio with host code: by how much a speedup over
        torch.compile was too high.
        """
        graph, with_host = _over_eager(self.graph), _over_eager(self.with_host)
        if graph is None or with_host is None or self.graph is None or self.graph.compiled is None:
            return None
        return graph / with_host if self.graph.compiled.method is TimingMethod.GRAPH else None

    @property
    def before(self) -> float | None:
        """The draft's speedup over torch.compile as it was printed before: the ratio of two graphs times that of two
        calls with their host code.
        """
        with_host = _over_eager(self.with_host)
        speedup = self.profile.speedup if self.profile is not None else None
        return speedup / with_host if speedup and with_host else None

    @property
    def now(self) -> float | None:
        """The draft's speedup over torch.compile, all by one method."""
        return self.profile.speedup_compiled if self.profile is not None else None


def _over_eager(baseline: Baseline | None) -> float | None:
    if baseline is None or baseline.eager is None or baseline.compiled is None:
        return None
    return Speedup.between(baseline.eager, baseline.compiled).median


# ---------------------------------------------------------------------- the sample
def sampled(problems: Sequence[Problem], seed: int) -> list[Problem]:
    """All problems in an order whose every beginning is a sample in proportion to levels and kinds."""
    generator = random.Random(seed)
    strata: dict[tuple[str, str], list[Problem]] = {}
    for problem in problems:
        strata.setdefault((problem.family, _kind(problem)), []).append(problem)
    placed: list[tuple[float, int, Problem]] = []
    for members in strata.values():
        generator.shuffle(members)
        for index, problem in enumerate(members):
            placed.append(((index + generator.random()) / len(members), len(placed), problem))
    return [problem for _, _, problem in sorted(placed, key=lambda entry: entry[:2])]


def _kind(problem: Problem) -> str:
    title = (problem.title or problem.name).lower()
    if "conv" in title:
        return "convolution"
    return "product" if "matmul" in title or "gemm" in title or "matrix" in title else "other"


# ---------------------------------------------------------------------- the measurement
class Bench:
    """Measures problems on one GPU, from several threads."""

    def __init__(
        self,
        evaluator: Evaluator,
        baselines: Baselines,
        drafts: Path,
        apart: frozenset[tuple[str, str]],
    ):
        """apart: problem and mode of the drafts whose speed is no speed of the same work."""
        self._evaluator, self._baselines, self._drafts, self._apart = (
            evaluator,
            baselines,
            drafts,
            apart,
        )

    def row(self, problem: Problem) -> ClockRow:
        """Judges the draft, then times eager and torch.compile by both methods. Never raises."""
        title = problem.title or problem.name
        row = ClockRow(problem=title, level=problem.family)
        try:
            mode = next(
                (
                    mode
                    for mode in DraftMode
                    if kept_draft_path(self._drafts, problem, mode).exists()
                ),
                None,
            )
            if mode is None:
                row = row.with_(reason="no draft")
            else:
                row = self._judged(
                    row.with_(mode=mode, apart=(title, mode.value) in self._apart), problem, mode
                )
            return self._with_baselines(row, problem)
        except Exception as error:  # whatever it is: the other problems of a lent GPU go on
            return row.with_(reason=f"not judged: {type(error).__name__}: {error}")

    def _judged(self, row: ClockRow, problem: Problem, mode: DraftMode) -> ClockRow:
        source = kept_draft_path(self._drafts, problem, mode).read_text(encoding="utf-8")
        options = Options(own_work=RULES[mode], sizes=0, torch_compile=False)
        report: Report = self._evaluator.evaluate(problem, source, options)
        return row.with_(correct=report.correct, reason=report.explanation, profile=report.profile)

    def _with_baselines(self, row: ClockRow, problem: Problem) -> ClockRow:
        environment = self._evaluator.environment()
        self._baselines.get_ready(problem, environment)
        with self._alone():
            graph, with_host = self._baselines.timed_by_each(problem, environment, METHODS)
        reason = "; ".join(part for part in (row.reason, graph.note) if part)
        row = row.with_(graph=graph, with_host=with_host, reason=reason)
        return (
            row.with_(profile=compared_with(graph, row.profile)) if row.profile is not None else row
        )

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if not self._evaluator.on_gpu:
            yield
            return
        with self._evaluator.alone_on_the_gpu():
            yield


# ---------------------------------------------------------------------- what is written
SUMMARY = (
    "| level | problems | torch.compile was overstated by, worst | drafts timed | over eager | over torch.compile as "
    "before | now | reached 1.1 before, not now |"
)
MEANS = (
    "Means are geometric, over right drafts that do the same work. Times are medians in milliseconds; what the host "
    "takes to launch one call is in microseconds."
)
COLUMNS = (
    "| problem | level | mode | eager | torch.compile | the same with host code | draft | host: eager | torch.compile "
    "| draft | over torch.compile before | now | note |"
)


def text(rows: Sequence[ClockRow], problems: int, head: str) -> str:
    """The Markdown file."""
    begun = f"{len(rows)} of {problems} problems were begun: a stratified sample, complete where both are equal."
    lines = [
        "# torch.compile as a CUDA graph, and by events with its host code",
        "",
        head,
        "",
        begun,
        "",
        SUMMARY,
    ]
    lines.append("|---|---|---|---|---|---|---|---|")
    levels = sorted({row.level for row in rows})
    for level in levels:
        lines.append(_summary(level, [row for row in rows if row.level == level]))
    if len(levels) > 1:
        lines.append(_summary("all", rows))
    lines += ["", MEANS, "", COLUMNS, "|" + "---|" * 13]
    lines += [_line(row) for row in rows]
    return "\n".join(lines) + "\n"


def _summary(level: str, rows: Sequence[ClockRow]) -> str:
    overstated = [row.overstated for row in rows if row.overstated]
    timed = [row for row in rows if row.correct and row.now and row.before and not row.apart]
    misled = sum((row.before or 0.0) >= GOAL > (row.now or 0.0) for row in timed)
    worst = f", {max(overstated):.2f}" if overstated else ""
    means = [
        geometric_mean(row.profile.speedup if row.profile else None for row in timed),
        geometric_mean(row.before for row in timed),
        geometric_mean(row.now for row in timed),
    ]
    head = f"| {level} | {len(overstated)} of {len(rows)} | {geometric_mean(overstated)}{worst} | {len(timed)} "
    return f"{head}| {' | '.join(means)} | {misled} |"


def _line(row: ClockRow) -> str:
    graph, with_host, profile = row.graph, row.with_host, row.profile
    times = [
        graph.eager if graph else None,
        graph.compiled if graph else None,
        with_host.compiled if with_host else None,
        profile.candidate if profile else None,
    ]
    hosts = [
        graph.eager_host_ms if graph else None,
        graph.compiled_host_ms if graph else None,
        profile.host_ms if profile else None,
    ]
    cells = [row.problem, row.level, str(row.mode or "-")]
    cells += [f"{timing.median:.4g}" if timing else "-" for timing in times]
    cells += [f"{ms * 1e3:.0f}" if ms is not None else "-" for ms in hosts]
    cells += [f"{ratio:.2f}" if ratio else "-" for ratio in (row.before, row.now)]
    return f"| {' | '.join(cells)} | {row.reason.replace('|', '/')[:160]} |"


# ---------------------------------------------------------------------- the command
def parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder")
    parser.add_argument("--drafts", type=Path, required=True)
    parser.add_argument("--level", type=int, action="append")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument(
        "--seconds", type=float, default=390.0, help="after which no problem is begun"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--compilers", type=int, default=5, help="processes that compile ahead")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--rows", type=Path, nargs="*", default=[])
    parser.add_argument("--out", type=Path, default=Path("bench/results/compile_clock"))
    return parser.parse_args(argv)


def main(
    argv: Sequence[str] | None = None,
    say: Callable[[str], None] = lambda line: print(line, flush=True),
) -> int:
    asked = parsed(argv)
    levels = asked.level or [1, 2]
    problems = [
        problem for level in levels for problem in choose_problems([asked.folder], level=level)
    ]
    order = sampled(problems, asked.seed)[: asked.limit]
    stored = [
        Row.model_validate(row)
        for path in asked.rows
        for row in json.loads(path.read_text(encoding="utf-8"))
    ]
    apart = frozenset((row.problem, row.mode.value) for row in stored if row.apart)
    head = (
        f"`python -m bench.compile_clock {' '.join(argv or sys.argv[1:])}`, "
        f"{machine_of(asked.device)}, {date.today()}"
    )
    rows: list[ClockRow] = []
    begun, late = time.monotonic(), threading.Event()
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    baselines = Baselines(asked.device, processes=asked.compilers)
    with Evaluator(asked.device, workers=1) as evaluator, ThreadPoolExecutor(asked.workers) as pool:
        bench = Bench(evaluator, baselines, asked.drafts, apart)

        def row_of(problem: Problem) -> ClockRow | None:
            return (
                None
                if late.is_set() or time.monotonic() - begun > asked.seconds
                else bench.row(problem)
            )

        try:
            jobs = [pool.submit(row_of, problem) for problem in order]
            for job in as_completed(jobs):
                if (row := job.result()) is None:
                    continue
                rows.append(row)
                say(f"{len(rows)}/{len(order)} {time.monotonic() - begun:.0f} s {_line(row)}")
                write(rows, len(problems), head, asked.out)
        finally:
            late.set()
            baselines.close()
    say(text(rows, len(problems), head).partition("| problem |")[0])
    return 0 if any(row.overstated for row in rows) else 1


def write(rows: Sequence[ClockRow], problems: int, head: str, out: Path) -> None:
    """OUT.md for people, OUT.json for machines."""
    out.with_suffix(".md").write_text(text(rows, problems, head), encoding="utf-8")
    dumped = json.dumps(
        [row.model_dump(mode="json", exclude_defaults=True) for row in rows], indent=1
    )
    out.with_suffix(".json").write_text(dumped + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
