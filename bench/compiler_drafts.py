"""The compiler's drafts for a folder of problems or a checkout of a suite, each judged: `--policy compiler` without
a policy, turns or a database.

    python -m bench.compiler_drafts FOLDER [--level 1] [--device cpu] [--modes strict,share] [--only REGEX]
        [--workers 1] [--seconds N] [--keep DRAFTS] [--draft-only] [--out bench/results/compiler_drafts-NAME]

FOLDER is a folder of problem files, or a checkout of KernelBench or of TritonBench (whose T channel it then is).

On a CPU a draft is compiled for one target and replayed under Triton's interpreter at small sizes; on a GPU
(`--device cuda:0`) it is judged and timed at full size. `NAME.md` is for people, `NAME.json` for machines; both are
written again after every problem, so that Ctrl-C keeps what is done.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from datetime import date
from pathlib import Path

from kernelwright.agent.batch.suite_choice import choose_problems
from kernelwright.agent.solve.drafting import Drafter
from kernelwright.policies.inductor.draft import Mode
from kernelwright.tools.judging.options import Options
from kernelwright.tools.pipeline import Evaluator
from kernelwright.tools.problem import Problem, ProblemError
from kernelwright.tools.report import InfrastructureError, Report, Value

RULES = {Mode.STRICT: "strict", Mode.SHARE: "share:0.001"}
"""What the judge asks of own work in each mode: in share, a kernel that the answer needs, beside a product that may
take all but a thousandth of the GPU's time.
"""


class Row(Value):
    """One problem in one mode."""

    problem: str
    level: str
    mode: Mode
    drafted: bool = False
    refused: str = ""
    kernels: int = 0
    library_calls: tuple[str, ...] = ()
    fixed_sizes: tuple[str, ...] = ()
    draft_seconds: float = 0.0
    correct: bool = False
    reason: str = ""
    """Why it is not correct, in one line."""
    verdict_seconds: float = 0.0
    speedup: float | None = None
    """Over eager; None where nothing was timed."""
    speedup_compiled: float | None = None
    """Over torch.compile in its default mode."""

    @property
    def seconds(self) -> float:
        return self.draft_seconds + self.verdict_seconds


def measured(problem: Problem, mode: Mode, drafter: Drafter, evaluator: Evaluator | None, keep: Path | None) -> Row:
    """Drafts one problem, and judges the draft where there is somebody to judge it."""
    row = Row(problem=problem.title or problem.name, level=problem.family, mode=mode)
    start = time.monotonic()
    made = drafter.draft(problem, RULES[mode])
    row = row.with_(
        drafted=made.usable, refused=made.refused, kernels=made.kernels, library_calls=made.library_calls,
        fixed_sizes=made.fixed_sizes, draft_seconds=time.monotonic() - start,
    )  # fmt: skip
    if not made.usable:
        return row.with_(reason=made.refused)
    if keep is not None:
        (keep / f"{re.sub(r'[^A-Za-z0-9]+', '_', problem.name)}-{mode}.py").write_text(made.source, encoding="utf-8")
    if evaluator is None:
        return row.with_(reason="drafted, not judged")
    start = time.monotonic()
    try:
        report = evaluator.evaluate(problem, made.source, Options(own_work=RULES[mode]))
    except (ProblemError, InfrastructureError) as error:
        return row.with_(reason=f"not judged: {error}", verdict_seconds=time.monotonic() - start)
    return _judged(row, report, time.monotonic() - start)


def _judged(row: Row, report: Report, seconds: float) -> Row:
    profile, failure = report.profile, report.failure
    said = f"{failure.fault}: {failure.message.splitlines()[0][:300] if failure.message else ''}" if failure else ""
    return row.with_(
        correct=report.correct, reason="" if report.correct else said, verdict_seconds=seconds,
        speedup=profile.speedup if profile else None, speedup_compiled=profile.speedup_compiled if profile else None,
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------------- what is written
def percentile(values: Iterable[float], share: float) -> float:
    """The nearest-rank percentile; 0 of nothing."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def geometric_mean(values: Iterable[float | None]) -> str:
    known = [v for v in values if v]
    return f"{statistics.geometric_mean(known):.2f}" if known else "-"


def table(rows: Sequence[Row]) -> list[str]:
    """Figures by level and mode."""
    lines = [
        "| level | mode | problems | drafted | correct | draft s p50 / p95 | verdict s p50 / p95 | fast_1 | over eager"
        " | over torch.compile |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for level, mode in sorted({(r.level, r.mode) for r in rows}):
        part = [r for r in rows if (r.level, r.mode) == (level, mode)]
        right = [r for r in part if r.correct]
        timed = [r for r in right if r.speedup is not None]
        drafts, verdicts = [r.draft_seconds for r in part], [r.verdict_seconds for r in part if r.drafted]
        fast = f"{sum((r.speedup or 0) >= 1 for r in timed)}" if timed else "-"
        lines.append(
            f"| {level or '-'} | {mode} | {len(part)} | {sum(r.drafted for r in part)} | {len(right)} "
            f"| {percentile(drafts, 0.5):.1f} / {percentile(drafts, 0.95):.1f} "
            f"| {percentile(verdicts, 0.5):.1f} / {percentile(verdicts, 0.95):.1f} | {fast} "
            f"| {geometric_mean(r.speedup for r in right)} | {geometric_mean(r.speedup_compiled for r in right)} |"
        )
    return lines


def text(rows: Sequence[Row], command: str, machine: str, seconds: float) -> str:
    """The Markdown file."""
    failed = [f"| {r.problem} | {r.mode} | {r.reason.replace('|', '/')} |" for r in rows if not r.correct]
    fixed = [f"- {r.problem} ({r.mode}): {', '.join(r.fixed_sizes)}" for r in rows if r.correct and r.fixed_sizes]
    parts = ["# The compiler's drafts", f"`{command}`  ", f"{machine}, {date.today()}, {seconds:.0f} s in all.",
             "\n".join(table(rows))]  # fmt: skip
    if failed:
        parts += ["## Not correct", "\n".join(["| problem | mode | why |", "|---|---|---|", *failed])]
    if fixed:
        parts += ["## Correct, with a size that tracing fixed", "\n".join(fixed)]
    return "\n\n".join(parts) + "\n"


def machine_of(device: str) -> str:
    if device == "cpu":
        return f"{os.cpu_count()} cores ({platform.machine()}), no GPU, small sizes under Triton's interpreter"
    import torch

    return f"{torch.cuda.get_device_name(device)}, full size, torch {torch.__version__}"


def chosen(arguments: argparse.Namespace) -> list[Problem]:
    """The problems of a folder, or of a checkout where it is one of KernelBench."""
    problems = choose_problems([arguments.folder], level=arguments.level)
    wanted = re.compile(arguments.only)
    return [p for p in problems if wanted.search(f"{p.name} {p.title}")][: arguments.limit]


def parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--level", type=int)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--modes", default="strict", type=lambda v: [Mode(m) for m in v.split(",")])
    parser.add_argument("--only", default="", help="a regular expression over names")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, help="after which no problem is begun")
    parser.add_argument("--keep", type=Path, help="a folder for the drafts")
    parser.add_argument("--draft-only", action="store_true", help="judge nothing")
    parser.add_argument("--out", type=Path, default=Path("bench/results/compiler_drafts"))
    return parser.parse_args(argv)


def _print(line: str) -> None:
    print(line, flush=True)


def main(argv: Sequence[str] | None = None, say: Callable[[str], None] = _print) -> int:
    arguments = parsed(argv)
    command = "python -m bench.compiler_drafts " + " ".join(argv or sys.argv[1:])
    asked = [(p, m) for p in chosen(arguments) for m in arguments.modes]
    for folder in (arguments.keep, arguments.out.parent):
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    found: dict[int, Row] = {}
    with (
        Drafter() as drafter,
        nullcontext() if arguments.draft_only else Evaluator(arguments.device, workers=1) as evaluator,
        ThreadPoolExecutor(arguments.workers) as pool,
    ):

        def one(problem: Problem, mode: Mode) -> Row | None:
            late = arguments.seconds is not None and time.monotonic() - start > arguments.seconds
            return None if late else measured(problem, mode, drafter, evaluator, arguments.keep)

        jobs = {pool.submit(one, *pair): number for number, pair in enumerate(asked)}
        for job in as_completed(jobs):
            row = job.result()
            if row is None:
                continue
            found[jobs[job]] = row
            took = f"{row.draft_seconds:.1f} + {row.verdict_seconds:.1f} s"
            say(
                f"{len(found)}/{len(asked)} {row.problem} {row.mode} {took}: {'correct' if row.correct else row.reason}"
            )
            rows = [found[number] for number in sorted(found)]
            written = text(rows, command, machine_of(arguments.device), time.monotonic() - start)
            arguments.out.with_suffix(".md").write_text(written, encoding="utf-8")
            dumped = json.dumps([r.model_dump(mode="json") for r in rows], indent=1)
            arguments.out.with_suffix(".json").write_text(dumped + "\n", encoding="utf-8")
    rows = [found[number] for number in sorted(found)]
    if len(rows) < len(asked):
        say(f"{len(asked) - len(rows)} were not begun within {arguments.seconds:.0f} s")
    say("\n".join(table(rows)))
    say(f"{time.monotonic() - start:.0f} s in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
