"""The compiler's drafts for a folder of problems or a checkout of a suite, each judged: `--policy compiler` without
a policy, turns or a database.

    python -m bench.compiler_drafts FOLDER [--level 1] [--device cpu] [--modes strict,share] [--only REGEX]
        [--workers 1] [--seconds N] [--draft-seconds N] [--tune SECONDS] [--tune-from JSON] [--precision any]
        [--keep DRAFTS] [--draft-only] [--out bench/results/compiler_drafts-NAME]

FOLDER is a folder of problem files, of definitions or of tasks (docs/how-to/batch-a-suite.md), or a checkout of
KernelBench or of TritonBench (whose T channel it then is).

On a CPU a draft is compiled for one target and replayed under Triton's interpreter at small sizes; on a GPU
(`--device cuda:0`) it is judged and timed at full size. A draft that is right but for its precision is judged again
with its products in fp32; `--precision ieee` makes them so at once. `--tune SECONDS` lets TUNE search the numbers of
every right draft, for so many seconds of the GPU each, and judges what won once more; `--tune-from` does so with what
an earlier run kept, the fastest right draft of each problem, those farthest behind torch.compile first. `NAME.md` is
for people, `NAME.json` for machines; both are written again after every problem, so that Ctrl-C keeps what is done.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from bench.compiler_drafts_table import Row, best_of_modes, best_table, table, text, write
from bench.compiler_drafts_tuning import tuned
from kernelwright.agent.batch.suite_choice import choose_problems
from kernelwright.agent.solve.drafting import Drafter
from kernelwright.agent.tuning.settings import PrecisionClass
from kernelwright.policies.inductor.draft import (
    SUITE_DRAFT_SECONDS,
    Draft,
    DraftMode,
    has_split_products,
    with_fp32_products,
)
from kernelwright.tools.evaluation.pipeline import Evaluator
from kernelwright.tools.faults import ARITHMETIC_FAULTS
from kernelwright.tools.options import Options
from kernelwright.tools.problem import Problem, ProblemError
from kernelwright.tools.report import InfrastructureError, Report

RULES = {DraftMode.STRICT: "strict", DraftMode.SHARE: "share:0.001"}
"""What the judge asks of own work in each mode: in share, a kernel that the answer needs, beside a product that may
take all but a thousandth of the GPU's time.
"""


class KeptDrafts:
    """In the place of a Drafter: the drafts that a run with --draft-only left in a folder, on whatever machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def draft(
        self, problem: Problem, own_work: str, *, tf32: bool = True, split: bool = True
    ) -> Draft:
        """The text that lies there, whatever precision is asked for: another one is never made."""
        mode = next(mode for mode, rule in RULES.items() if rule == own_work)
        path = kept_draft_path(self._folder, problem, mode)
        if not path.exists():
            return Draft(mode=mode, refused=f"no such draft was kept in {self._folder}")
        text = path.read_text(encoding="utf-8")
        return Draft(mode=mode, source=text, kernels=text.count("@triton.jit"))


def measured(
    problem: Problem, mode: DraftMode, drafter: Drafter | KeptDrafts, evaluator: Evaluator | None, keep: Path | None,
    seconds: float | None = None, precision: PrecisionClass = PrecisionClass.ANY,
) -> Row:  # fmt: skip
    """Drafts one problem, and judges the draft where there is somebody to judge it. seconds: of the GPU, for TUNE."""
    row = Row(problem=problem.title or problem.name, level=problem.family, mode=mode)
    start = time.monotonic()
    on_gpu = evaluator is None or evaluator.on_gpu

    def drafted(split: bool) -> Draft:
        tf32 = on_gpu and precision is PrecisionClass.ANY
        return drafter.draft(problem, RULES[mode], tf32=tf32, split=on_gpu and split)

    made = drafted(precision is not PrecisionClass.IEEE)
    row = row.with_(
        drafted=made.usable, refused=made.refused, kernels=made.kernels, library_calls=made.library_calls,
        fixed_sizes=made.fixed_sizes, algebra=made.algebra, split=has_split_products(made.source),
        draft_seconds=time.monotonic() - start,
    )  # fmt: skip
    if not made.usable:
        return row.with_(reason=made.refused)
    if evaluator is None:
        _keep(keep, problem, mode, made.source)
        return row.with_(reason="drafted, not judged")
    start, source = time.monotonic(), made.source
    try:
        report = evaluator.evaluate(problem, source, Options(own_work=RULES[mode]))
        imprecise = report.failure is not None and report.failure.fault in ARITHMETIC_FAULTS
        exact = (
            (drafted(False).source if row.split else with_fp32_products(source))
            if imprecise
            else ""
        )
        if exact and exact != source:
            row, source = row.with_(in_fp32=True, split=False), exact
            report = evaluator.evaluate(problem, source, Options(own_work=RULES[mode]))
        row = _judged(row, report, time.monotonic() - start)
        if seconds is not None and row.correct:
            row, source = _tuned(row, problem, source, evaluator, seconds, keep)
    except (ProblemError, InfrastructureError) as error:
        row = row.with_(reason=f"not judged: {error}", verdict_seconds=time.monotonic() - start)
    _keep(keep, problem, mode, source)
    return row


def _keep(folder: Path | None, problem: Problem, mode: DraftMode, source: str) -> None:
    if folder is not None:
        kept_draft_path(folder, problem, mode).write_text(source, encoding="utf-8")


def kept_draft_path(folder: Path, problem: Problem, mode: DraftMode) -> Path:
    """The file in which a run keeps the draft of a problem."""
    return folder / f"{re.sub(r'[^A-Za-z0-9]+', '_', problem.name)}-{mode}.py"


def _tuned(
    row: Row, problem: Problem, source: str, evaluator: Evaluator, seconds: float, keep: Path | None
) -> tuple[Row, str]:
    """The row of the tuned text where it is right and faster, and that text."""
    found, text = tuned(problem, source, RULES[row.mode], evaluator, seconds, keep)
    row = row.with_(tuning=found, untuned=row.speedup)
    if text == source:
        return row, source
    start = time.monotonic()
    report = evaluator.evaluate(problem, text, Options(own_work=RULES[row.mode]))
    again = _judged(row, report, row.verdict_seconds + time.monotonic() - start)
    if not again.correct or (again.speedup or 0.0) < (row.speedup or 0.0):
        kept = found.with_(note=again.reason or "no faster when judged once more", unsplit=1.0)
        return row.with_(tuning=kept), source
    return again, text


def _judged(row: Row, report: Report, seconds: float) -> Row:
    profile, failure = report.profile, report.failure
    unjudged = "; ".join(report.warnings) or "nothing was interpreted"
    said = (
        f"{failure.fault}: {failure.message.splitlines()[0][:300] if failure.message else ''}"
        if failure
        else unjudged
    )
    return row.with_(
        correct=report.correct, reason="" if report.correct else said, verdict_seconds=seconds,
        degenerate=report.degenerate,
        speedup=profile.speedup if profile else None, speedup_compiled=profile.speedup_compiled if profile else None,
        method=profile.method if profile else None,
    )  # fmt: skip


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
    parser.add_argument(
        "--modes", default="strict", type=lambda v: [DraftMode(m) for m in v.split(",")]
    )
    parser.add_argument("--only", default="", help="a regular expression over names")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, help="after which no problem is begun")
    parser.add_argument(
        "--draft-seconds", type=float, default=SUITE_DRAFT_SECONDS, help="for one draft"
    )
    parser.add_argument(
        "--tune", type=float, metavar="SECONDS", help="of the GPU, for each right draft"
    )
    parser.add_argument(
        "--tune-from", type=Path, metavar="JSON",
        help="results of a run with the same --keep: of each problem the fastest right draft is tuned, none is drafted",
    )  # fmt: skip
    parser.add_argument(
        "--precision", type=PrecisionClass, default=PrecisionClass.ANY, choices=list(PrecisionClass),
        help="of products of fp32",
    )  # fmt: skip
    parser.add_argument("--keep", type=Path, help="a folder for the drafts")
    parser.add_argument(
        "--kept", action="store_true", help="judge the drafts that lie in --keep, and draft none"
    )
    parser.add_argument("--draft-only", action="store_true", help="judge nothing")
    parser.add_argument("--out", type=Path, default=Path("bench/results/compiler_drafts"))
    return parser.parse_args(argv)


def earlier_rows(arguments: argparse.Namespace) -> list[Row]:
    """The rows of --tune-from; none without it."""
    if arguments.tune_from is None:
        return []
    if arguments.tune is None or arguments.keep is None:
        raise SystemExit(
            "--tune-from needs --tune SECONDS, and --keep FOLDER with the drafts of that run"
        )
    return [
        Row.model_validate(row)
        for row in json.loads(arguments.tune_from.read_text(encoding="utf-8"))
    ]


def in_order(
    rows: Sequence[Row], asked: Sequence[tuple[Problem, DraftMode]]
) -> list[tuple[int, Problem]]:
    """Returns, of each problem that is asked for, the row to tune and its place: first those farthest behind
    torch.compile.
    """
    problems = {problem.title or problem.name: problem for problem, _ in asked}
    best = [row for row in best_of_modes(rows) if row.problem in problems]
    best.sort(key=lambda row: row.speedup_compiled or row.speedup or 0.0)
    return [(rows.index(row), problems[row.problem]) for row in best]


def tuned_again(
    problem: Problem, row: Row, evaluator: Evaluator | None, keep: Path, seconds: float
) -> Row:
    """A row of an earlier run after TUNE; as it was where its draft is not there, or cannot be judged now."""
    path = kept_draft_path(keep, problem, row.mode)
    if evaluator is None or not path.exists():
        return row
    try:
        row, source = _tuned(
            row, problem, path.read_text(encoding="utf-8"), evaluator, seconds, keep
        )
    except (ProblemError, InfrastructureError) as error:
        return row.with_(reason=f"not tuned: {error}")
    path.with_name(f"{path.stem}-tuned.py").write_text(source, encoding="utf-8")
    return row


def drafter_of(arguments: argparse.Namespace) -> AbstractContextManager[Drafter | KeptDrafts]:
    """Who drafts. Raises SystemExit for --kept without a folder."""
    if not arguments.kept:
        return Drafter(seconds=arguments.draft_seconds)
    if arguments.keep is None:
        raise SystemExit("--kept needs --keep FOLDER, with the drafts of a run with --draft-only")
    return nullcontext(KeptDrafts(arguments.keep))


def _write(
    arguments: argparse.Namespace, rows: Sequence[Row], command: str, seconds: float
) -> None:
    written = text(rows, command, machine_of(arguments.device), seconds)
    write(rows, written, arguments.out)


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
    earlier = earlier_rows(arguments)
    found: dict[int, Row] = {}
    with (
        drafter_of(arguments) as drafter,
        nullcontext()
        if arguments.draft_only
        else Evaluator(arguments.device, workers=1) as evaluator,
        ThreadPoolExecutor(arguments.workers) as pool,
    ):

        def one(problem: Problem, mode: DraftMode) -> Row | None:
            late = arguments.seconds is not None and time.monotonic() - start > arguments.seconds
            if late:
                return None
            return measured(
                problem,
                mode,
                drafter,
                evaluator,
                arguments.keep,
                arguments.tune,
                arguments.precision,
            )

        def again(problem: Problem, row: Row) -> Row | None:
            late = arguments.seconds is not None and time.monotonic() - start > arguments.seconds
            return (
                None
                if late
                else tuned_again(problem, row, evaluator, arguments.keep, arguments.tune)
            )

        if earlier:
            found |= dict(enumerate(earlier))
            best = in_order(earlier, asked)
            jobs = {
                pool.submit(again, problem, earlier[number]): number for number, problem in best
            }
        else:
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
            _write(
                arguments,
                [found[number] for number in sorted(found)],
                command,
                time.monotonic() - start,
            )
    rows = [found[number] for number in sorted(found)]
    if len(rows) < len(asked):
        say(f"{len(asked) - len(rows)} were not begun within {arguments.seconds:.0f} s")
    say("\n".join([*table(rows), "", *best_table(rows)]))
    say(f"{time.monotonic() - start:.0f} s in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
