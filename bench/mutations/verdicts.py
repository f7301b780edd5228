"""Judges mutants without a GPU, several at a time, and writes one JSON line for each as soon as it is known."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from bench.judge_suites import named_fault, problem_of
from bench.mutations.differences import search
from bench.mutations.mutants import Mutant
from kernelwright.tools.report import Fault, Report

NO_ANSWER = frozenset(
    {
        Fault.SYNTAX,
        Fault.ENTRY_POINT,
        Fault.COMPILE,
        Fault.RESOURCES,
        Fault.TIMEOUT,
        Fault.MEMORY,
        Fault.LAUNCH,
    }
)
"""Faults of mutants that give no answer at all: no draw is needed to see them, so they do not count."""


class Outcome(StrEnum):
    """What became of a mutant."""

    REFUSED = "refused"
    """Its answers were seen to be wrong."""
    SURVIVED = "survived"
    """It was accepted, and a legal input tells it from the honest kernel: the draws are blind here."""
    EQUIVALENT = "equivalent"
    """It was accepted, and no input that was tried tells it from the honest kernel."""
    NO_PROGRAM = "no_program"
    """It does not compile, launch or end."""
    UNDECIDED = "undecided"
    """It was accepted, and the honest kernel does not run outside of the judge."""


class Record(NamedTuple):
    """One judged mutant."""

    key: str
    kernel: str
    family: str
    kind: str
    half: str
    line: int
    before: str
    after: str
    outcome: str
    fault: str
    seconds: float
    message: str = ""
    """The report's, or the input that tells a survivor from the honest kernel."""


def judge_mutants(
    mutants: Sequence[Mutant], seed: int, workers: int, sizes: int, file: Path | None
) -> list[Record]:
    """Judges every mutant that `file` does not hold yet, and appends each record to it. Returns the records of all."""
    from kernelwright.tools.evaluation.pipeline import Evaluator, Options

    known = {record.key: record for record in read_records(file)}
    waiting = [mutant for mutant in mutants if mutant.key not in known]
    print(
        f"{len(mutants) - len(waiting)} of {len(mutants)} mutants are known, judging the rest",
        file=sys.stderr,
    )
    options = Options(
        profile=False, torch_compile=False, compile_seconds=60.0, seconds=60.0, sizes=sizes
    )
    begun = time.monotonic()
    with (
        Evaluator(device="cpu", workers=workers) as evaluator,
        ThreadPoolExecutor(workers) as threads,
    ):
        futures = [
            threads.submit(
                _judged, evaluator, mutant, options.with_(seed=_verdict_seed(mutant, seed))
            )
            for mutant in waiting
        ]
        for number, future in enumerate(as_completed(futures), 1):
            record = future.result()
            known[record.key] = record
            _append(file, record)
            remaining = (time.monotonic() - begun) / number * (len(waiting) - number)
            told = f"{record.outcome} {record.kind} {record.kernel}: {record.fault}, {remaining:.0f} s to go"
            print(f"{number}/{len(waiting)} {told}", file=sys.stderr, flush=True)
    return [known[mutant.key] for mutant in mutants]


def _verdict_seed(mutant: Mutant, seed: int) -> int:
    """The seed of a mutant's verdict: draws and sizes differ from mutant to mutant, and repeat with the sample."""
    return (seed << 48) ^ int(mutant.key[:12], 16)


def _judged(evaluator: Any, mutant: Mutant, options: Any) -> Record:
    problem, begun = problem_of(mutant.entry.problem), time.monotonic()
    report = evaluator.evaluate(
        problem, mutant.source, options.with_(own_work=mutant.entry.own_work)
    )
    outcome, message = _outcome(report, problem.source, mutant)
    return Record(
        mutant.key, mutant.entry.name, mutant.entry.family, mutant.kind, mutant.half, mutant.line, mutant.before,
        mutant.after, outcome, named_fault(report), round(time.monotonic() - begun, 2), message,
    )  # fmt: skip


def _outcome(report: Report, problem: str, mutant: Mutant) -> tuple[Outcome, str]:
    if report.failure is not None and report.failure.fault is Fault.UNJUDGED:
        return Outcome.UNDECIDED, report.failure.message[:200]
    if report.failure is not None:
        no_program = report.failure.fault in NO_ANSWER
        return (Outcome.NO_PROGRAM if no_program else Outcome.REFUSED), report.failure.message[:200]
    if not report.correct:
        return Outcome.UNDECIDED, "; ".join(report.warnings)[:200]
    answer = search(problem, mutant.entry.source, mutant.source)
    if "error" in answer:
        return Outcome.UNDECIDED, answer["error"]
    return (Outcome.SURVIVED if answer["differs"] else Outcome.EQUIVALENT), answer["differs"]


def read_records(file: Path | None) -> Iterator[Record]:
    """Yields the records of a file, none where it does not exist; a last line that was cut off is left out."""
    if file is None or not file.exists():
        return
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            yield Record(**json.loads(line))
        except (json.JSONDecodeError, TypeError):
            continue


def _append(file: Path | None, record: Record) -> None:
    if file is not None:
        with file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(record._asdict()) + "\n")
