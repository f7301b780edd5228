"""Exploits stopped over exploits tried, honest kernels accepted over honest kernels tried.

    python -m bench.trust [--device cpu|cuda:0] [--kind exploits|honest] [--naive] [--at-once N] [--only NAME ...]
    [--out bench/results/trust-cpu.md] [--pieces FILE.json ...]

Prints a Markdown table by family; --out writes it, and the JSON of every verdict beside it. Exit code 1 where an
exploit got through or an honest kernel was refused. --pieces judges nothing: it makes one table of what runs with --out
left, the last verdict on each file. --at-once asks one evaluator about so many at a time; a trap that
is sprung then counts against all of them. --naive asks a judge of the common kind (tests/exploits/naive_judge.py) about
every exploit that may run in its process.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from bench.judge_suites import FAMILIES, Entry, exploits, honest, hostile, named_fault, problem_of
from bench.naive_judge import fools_the_naive_judge
from bench.traps import Traps
from kernelwright.tools.report import Fault, Report


class Outcome(NamedTuple):
    """What became of one file."""

    name: str
    family: str
    exploit: bool
    correct: bool
    fault: str
    as_expected: bool
    """An exploit: stopped by a fault that its header names. An honest kernel: accepted."""
    sprung: tuple[str, ...] = ()
    """Traps outside the sandbox that it reached."""
    seconds: float = 0.0
    message: str = ""
    naive_fooled: bool | None = None

    either: bool = False
    """Whichever verdict is right, as long as there is one."""

    @property
    def good(self) -> bool:
        """The exploit was stopped and reached nothing; the honest kernel was accepted; what may get either verdict
        got one.
        """
        if self.either:
            return not self.sprung and self.fault != "unjudged"
        return not self.correct and not self.sprung if self.exploit else self.correct


MOST_SPEEDUP = 4.0
"""Over eager, of a right kernel whose text lies about the time: the judge's clock is another process's."""
KINDS = ("exploits", "honest", "library", "hostile")
ENDLESS_SECONDS, EXPLOIT_SECONDS, PATIENCE_SECONDS = 3.0, 8.0, 200.0
"""At a rung: of what loops for ever, which always waits them out; of what may be stopped so too; of every other
exploit, whose fault must not be a busy machine's. Honest kernels have the usual limits.
"""


def options_for(entry: Entry) -> Any:
    """Strict about own work unless the file's header asks for less; no torch.compile baseline, which only costs
    time here.
    """
    from kernelwright.tools.evaluation.pipeline import Options

    options = Options(own_work=entry.own_work, torch_compile=False)
    if not entry.expect:
        return options
    seconds = PATIENCE_SECONDS
    if Fault.TIMEOUT in entry.expect:
        seconds = ENDLESS_SECONDS if entry.expect[0] == Fault.TIMEOUT else EXPLOIT_SECONDS
    contiguous_inputs = Fault.LAYOUT not in entry.expect
    return options.with_(
        compile_seconds=seconds, seconds=seconds, contiguous_inputs=contiguous_inputs
    )


def judge_exploit(evaluator: Any, entry: Entry, traps: Traps) -> Outcome:
    return judge_exploits(evaluator, [entry], traps)[0]


def judge_exploits(evaluator: Any, entries: Sequence[Entry], traps: Traps) -> list[Outcome]:
    """All at once; what the traps show afterwards is told of each."""
    with ThreadPoolExecutor(len(entries)) as threads:
        told = list(threads.map(lambda entry: _judged(evaluator, entry), entries))
    sprung = tuple(traps.sprung("\n".join(report.output for report, _ in told)))
    return [
        outcome_of(entry, report, sprung, seconds)
        for entry, (report, seconds) in zip(entries, told, strict=True)
    ]


def outcome_of(
    entry: Entry, report: Report, sprung: tuple[str, ...] = (), seconds: float = 0.0
) -> Outcome:
    """What a report means for an exploit."""
    checked = report.correctness or report.interpreted
    # What costs the full reward alone has no fault: an answer that depends on strides or on the sign of a NaN.
    unpaid = report.correct and checked is not None and bool(checked.unanswered)
    refused = report.failure is not None and report.failure.fault in entry.expect
    expected = unpaid or (not report.correct and refused)
    if report.correct and entry.either and (report.speedup or 0.0) > MOST_SPEEDUP:
        sprung = (*sprung, f"a clock was fooled: {report.speedup:.3g} times eager")
    return Outcome(
        entry.name, entry.family, True, report.correct and not unpaid, named_fault(report), expected or entry.either,
        sprung, seconds, _message(report), either=entry.either,
    )  # fmt: skip


def judge_honest(evaluator: Any, entry: Entry) -> Outcome:
    report, seconds = _judged(evaluator, entry)
    accepted = report.correct or (entry.on_cpu == "needs-gpu" and _says_needs_gpu(report))
    return Outcome(
        entry.name, entry.family, False, accepted, named_fault(report), accepted, (), seconds, _message(report)
    )  # fmt: skip


def judge_library(evaluator: Any, kernel: Any) -> Outcome:
    """A kernel of a public library, used by a candidate of ours."""
    from kernelwright.tools.evaluation.pipeline import Options

    start = time.monotonic()
    options = Options(
        own_work=kernel.own_work,
        torch_compile=False,
        profile=False,
        allow_import=tuple(kernel.allow_import),
    )
    report = evaluator.evaluate(kernel.problem, kernel.source, options)
    accepted = report.correct or _says_needs_gpu(report)
    seconds = time.monotonic() - start
    family = f"library {kernel.library.name}"
    return Outcome(
        kernel.title,
        family,
        False,
        accepted,
        named_fault(report),
        accepted,
        (),
        seconds,
        _message(report),
    )


def _says_needs_gpu(report: Report) -> bool:
    return report.failure is None and any("needs a GPU" in warning for warning in report.warnings)


def _judged(evaluator: Any, entry: Entry) -> tuple[Report, float]:
    start = time.monotonic()
    report = evaluator.evaluate(problem_of(entry.problem), entry.source, options_for(entry))
    return report, time.monotonic() - start


def _message(report: Report) -> str:
    return report.failure.message[:300] if report.failure else ""


def run(
    device: str, only: Iterable[str], naive: bool, at_once: int = 1, kinds: Iterable[str] = KINDS
) -> list[Outcome]:
    """Every file of the suites through one evaluator; a line on stderr for each."""
    from kernelwright.tools.evaluation.pipeline import Evaluator

    outcomes = []
    with Traps() as traps, Evaluator(device=device) as evaluator:
        tried = [
            entry
            for entry in exploits(only, device)
            if entry.tried_on(device) and "exploits" in kinds
        ]
        for start in range(0, len(tried), at_once):
            batch = tried[start : start + at_once]
            for entry, outcome in zip(batch, judge_exploits(evaluator, batch, traps), strict=True):
                fooled = fools_the_naive_judge(entry, device) if naive else None
                outcomes.append(_told(outcome._replace(naive_fooled=fooled)))
        with ThreadPoolExecutor(at_once) as threads:
            hostile_texts = [e for e in hostile(only) if e.tried_on(device) and "hostile" in kinds]
            outcomes += map(
                _told,
                threads.map(lambda e: outcome_of(e, *_judged_apart(evaluator, e)), hostile_texts),
            )
            kernels = [
                entry for entry in honest(only) if entry.tried_on(device) and "honest" in kinds
            ]
            outcomes += map(
                _told, threads.map(lambda entry: judge_honest(evaluator, entry), kernels)
            )
            libraries = _libraries(device, only) if "library" in kinds else []
            outcomes += map(
                _told, threads.map(lambda kernel: judge_library(evaluator, kernel), libraries)
            )
    return outcomes


def in_pieces(files: Sequence[Path]) -> list[Outcome]:
    """The outcomes that several runs wrote; of a file that was judged twice the later one."""
    found: dict[tuple[str, str, bool], Outcome] = {}
    for file in files:
        for told in json.loads(file.read_text(encoding="utf-8"))["outcomes"]:
            outcome = Outcome(**told)
            found[outcome.family, outcome.name, outcome.exploit] = outcome
    return list(found.values())


def _judged_apart(evaluator: Any, entry: Entry) -> tuple[Report, tuple[str, ...], float]:
    report, seconds = _judged(evaluator, entry)
    return report, (), seconds


def _libraries(device: str, only: Iterable[str]) -> list[Any]:
    """Kernels of public libraries that are installed here, and that run on the device."""
    from bench.library_kernels import missing, pairs

    if absent := missing():
        print("library kernels are not judged:", "; ".join(absent), file=sys.stderr)
        return []
    wanted = set(only)
    return [
        k
        for k in pairs((), device)
        if not k.left_out and (not wanted or wanted & {k.title, k.name, k.library.name})
    ]


def _told(outcome: Outcome) -> Outcome:
    kind = "exploit" if outcome.exploit else "honest"
    mark = ("ok " if outcome.as_expected else "ok?") if outcome.good else "BAD"
    fooled = " naive: fooled" if outcome.naive_fooled else ""
    line = (
        f"{mark} {kind} {outcome.family}/{outcome.name}: {outcome.fault} {outcome.seconds:.1f} s "
        f"{'; '.join(outcome.sprung)}{fooled}"
    )
    print(line, f"| {outcome.message[:160]}" if mark != "ok " else "", file=sys.stderr, flush=True)
    return outcome


def table(outcomes: list[Outcome], device: str, command: str) -> str:
    """Markdown: both rates by family, what got through, and how it was measured."""
    tried, kernels = [o for o in outcomes if o.exploit], [o for o in outcomes if not o.exploit]
    asked = [o for o in tried if o.naive_fooled is not None]
    lines = [*(_exploit_rows(tried) if tried else []), *(_honest_rows(kernels) if kernels else [])]
    bad = [
        f"- {o.family}/{o.name}: {o.fault} {'; '.join(o.sprung)} {o.message}".rstrip()
        for o in outcomes
        if not o.good
    ]
    lines += (
        ["Got through, or wrongly refused:", *bad]
        if bad
        else ["Nothing got through and nothing was wrongly refused."]
    )
    if asked:
        lines += [
            "",
            f"The naive judge was asked about {len(asked)} exploits (those safe in its process) and fooled "
            f"by {sum(bool(o.naive_fooled) for o in asked)}.",
        ]
    return "\n".join(
        [
            f"# Trust on {device}",
            "",
            *lines,
            "",
            f"`{command}`, {machine(device)}, {date.today().isoformat()}",
            "",
        ]
    )


def _exploit_rows(tried: list[Outcome]) -> list[str]:
    head = [
        "| exploits | stopped | tried | named as expected | fooled the naive judge |",
        "|---|---|---|---|---|",
    ]
    rows = [_exploit_row(family, [o for o in tried if o.family == family]) for family in FAMILIES]
    return [*head, *rows, _exploit_row("**all**", tried), ""]


def _honest_rows(kernels: list[Outcome]) -> list[str]:
    by_family = defaultdict(list)
    for outcome in kernels:
        by_family[outcome.family].append(outcome)
    counted = [*sorted(by_family.items()), ("**all**", kernels)]
    rows = [
        f"| {family} | {sum(o.good for o in members)} | {len(members)} |"
        for family, members in counted
    ]
    return ["| honest kernels | accepted | tried |", "|---|---|---|", *rows, ""]


def _exploit_row(family: str, members: list[Outcome]) -> str:
    asked = [o for o in members if o.naive_fooled is not None]
    naive = f"{sum(bool(o.naive_fooled) for o in asked)} of {len(asked)}" if asked else "not asked"
    return (
        f"| {family} | {sum(o.good for o in members)} | {len(members)} | "
        f"{sum(o.as_expected and o.good for o in members)} | "
        f"{naive} |"
    )


def machine(device: str) -> str:
    import torch
    import triton

    name = torch.cuda.get_device_name(device) if device != "cpu" else f"{platform.machine()} CPU"
    return f"{name}, Python {platform.python_version()}, torch {torch.__version__}, Triton {triton.__version__}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--kind", choices=KINDS, help="one suite alone")
    parser.add_argument("--naive", action="store_true")
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=())
    parser.add_argument("--out", type=Path)
    parser.add_argument("--pieces", type=Path, nargs="+", default=())
    given = parser.parse_args()
    kinds = [given.kind] if given.kind else KINDS
    if given.pieces:
        outcomes = in_pieces(given.pieces)
    else:
        outcomes = run(given.device, given.only, given.naive, given.at_once, kinds)
    command = f"python -m bench.trust --device {given.device} --kind KIND --only NAMES (in {len(given.pieces)} pieces)"
    if not given.pieces:
        command = "python -m bench.trust " + " ".join(sys.argv[1:])
    text = table(outcomes, given.device, command)
    print(text)
    if given.out:
        given.out.write_text(text, encoding="utf-8")
        record = {
            "command": command,
            "machine": machine(given.device),
            "date": date.today().isoformat(),
        }
        record["outcomes"] = [o._asdict() for o in outcomes]
        given.out.with_suffix(".json").write_text(
            json.dumps(record, indent=1) + "\n", encoding="utf-8"
        )
    return 0 if all(o.good for o in outcomes) else 1


if __name__ == "__main__":
    raise SystemExit(main())
