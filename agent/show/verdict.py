"""One report for people: the verdict, the ladder, what was checked, the kernels, the speed, how it was isolated."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from agent.show.failure import failure_view, fault_name
from agent.show.kernels import kernels_view, matrix_view
from agent.show.speed import speed_view
from agent.show.words import BAD, GOOD, LABEL, QUIET, WARN, counted, data, facts, percent
from tools.results import CorrectnessResult, Failure, Fault, OwnWork, Report, Rung

CPU_ONLY = "on a CPU, interpreted, at shrunk shapes: right so far, and nothing is known of its speed"

NOT_ITS_OWN = frozenset({Fault.FALLBACK, Fault.NO_KERNEL, Fault.CHEAT})


def report_view(report: Report) -> RenderableType:
    """Everything a kernel engineer asks first, in that order. What was not reached is not shown."""
    parts: list[RenderableType] = [headline(report), facts([("rungs", ladder(report)), *_findings(report)])]
    if report.failure:
        parts.append(failure_view(report.failure))
    parts += _compiled(report)
    if report.profile:
        parts.append(speed_view(report.profile))
    parts.append(facts(_circumstances(report)))
    if report.output.strip():
        parts.append(Group(Text("what the candidate printed:", style=LABEL), data(report.output.rstrip(), QUIET)))
    return Group(*parts)


def headline(report: Report) -> Text:
    """`correct  fused_softmax, judged on NVIDIA H200` or `mismatch  ...`."""
    if report.correct:
        verdict = ("correct", GOOD)
    else:
        verdict = (fault_name(report.failure) if report.failure else "not judged", BAD)
    return Text.assemble(verdict, "  ", (report.problem, "bold"), ", ", data(_judged_on(report)))


def _judged_on(report: Report) -> str:
    if report.correctness is None and report.interpreted is None:
        return "never run"
    on_cpu = report.judged_on == "cpu" or report.correctness is None
    if on_cpu:
        return CPU_ONLY if report.correct else "judged on a CPU, interpreted, at shrunk shapes"
    return f"judged on {report.judged_on}"


def ladder(report: Report) -> Text:
    """`source ok > compile ok > interpreted fails`: every rung that was entered, the last one is where it stopped."""
    failed = _failed_rung(report)
    steps = []
    for rung in Rung:
        if rung is failed:
            steps.append(Text.assemble(rung.value, (" fails", BAD)))
            break
        if _entered(report, rung):
            steps.append(Text.assemble(rung.value, (" ok", GOOD)))
    return Text(" > ", style=QUIET).join(steps)


def _entered(report: Report, rung: Rung) -> bool:
    return {
        Rung.SOURCE: True,
        Rung.COMPILE: bool(report.compiles),
        Rung.INTERPRETED: report.interpreted is not None,
        Rung.CORRECTNESS: report.correctness is not None,
        Rung.PROFILE: report.profile is not None,
    }[rung]


def _failed_rung(report: Report) -> Rung | None:
    if report.failure is None:
        return None
    stages = {
        Rung.COMPILE: report.compile,
        Rung.INTERPRETED: report.interpreted,
        Rung.CORRECTNESS: report.correctness,
        Rung.PROFILE: report.profile,
    }
    return next((rung for rung, stage in stages.items() if stage and not stage.passed), report.rung)


def _findings(report: Report) -> list[tuple[str, object]]:
    checked = report.correctness or report.interpreted
    return [
        ("checks", _checks(checked) if checked else ""),
        ("KernelBench", "" if report.correct_kb is None else _kernelbench(report)),
        ("own work", _own_work(report.own_work, report.failure) if report.own_work else ""),
        ("degenerate", Text(_degenerate(report), style=WARN)),
        ("advice", data("\n".join(report.advice), WARN)),
    ]


def _kernelbench(report: Report) -> str:
    return f"its own rule says {'correct' if report.correct_kb else 'incorrect'}"


def _degenerate(report: Report) -> str:
    passes = ", ".join(report.degenerate)
    return f"this problem cannot tell a right answer from: {passes}" if passes else ""


def _checks(result: CorrectnessResult) -> Text:
    """How many comparisons passed, the worst of them, and with what sizes."""
    passed = sum(check.passed for check in result.checks)
    text = Text(f"{passed} of {len(result.checks)} passed")
    ratios = [c.error_ratio for c in result.checks if c.error_ratio is not None]
    if ratios:
        text.append(f", error at most {max(ratios):.3g} of eager's own")
    if result.deterministic is not None:
        text.append(", bitwise repeatable" if result.deterministic else ", not bitwise repeatable")
    if result.sizes:
        text.append(f", sizes {' '.join(f'{k}={v}' for k, v in result.sizes.items())}")
    if result.weights_reloaded is False:
        text.append(", weights could not be matched with the reference's", style=WARN)
    for note in result.notes:
        text.append("\n").append(data(note, QUIET))
    return text


def _own_work(work: OwnWork, failure: Failure | None) -> Text:
    """A candidate that failed for another reason was not asked whose work it is."""
    if work.accepted:
        verdict = ("its own", GOOD)
    else:
        verdict = ("not its own", BAD) if failure and failure.fault in NOT_ITS_OWN else ("not judged", QUIET)
    text = Text.assemble(verdict, f" ({work.mode})")
    if work.share is not None:
        text.append(f", {percent(work.share)} of {work.share_of.replace('_', ' ') or 'the work'} in its own kernels")
    if work.needed is False:
        text.append(", and the output does not depend on them", style=BAD)
    for label, census in (("launches", work.census.launches), ("torch computes", work.census.compute_ops)):
        if census:
            text.append(f"\n{label}: ").append(data(counted(census)))
    return text


def _compiled(report: Report) -> list[RenderableType]:
    if len(report.compiles) > 1:
        return [matrix_view(report.compiles)]
    if report.compile is None:
        return []
    view = kernels_view(report.compile)
    title = Text(f"compiled for {report.compile.target} in {report.compile.seconds:.2f} s", style=LABEL)
    notes = [data(note, QUIET) for note in report.compile.notes]
    return [title, *([view] if view is not None else []), *notes]


def _circumstances(report: Report) -> list[tuple[str, object]]:
    isolation, environment = report.isolation, report.environment
    versions = [f"{name} {value}" for name, value in _versions(report) if value]
    return [
        ("isolation", ", ".join(isolation.active) if isolation else ""),
        ("not isolated", data("\n".join(isolation.missing), WARN) if isolation and isolation.missing else ""),
        ("made with", ", ".join(versions)),
        ("on", ", ".join(part for part in (environment.gpu, environment.host) if part)),
        ("warnings", data("\n".join(_unsaid(report)), WARN)),
        ("took", f"{report.seconds:.2f} s{' (from the cache)' if report.cached else ''}"),
    ]


def _unsaid(report: Report) -> list[str]:
    """The warnings that repeat nothing shown elsewhere: missing layers and other targets have their own lines."""
    said = list(report.isolation.missing) if report.isolation else []
    said += [c.failure.message for c in report.compiles[1:] if c.failure]
    return [warning for warning in report.warnings if not any(part in warning for part in said)]


def _versions(report: Report) -> list[tuple[str, str]]:
    e = report.environment
    return [
        ("evaluator", e.evaluator),
        ("torch", e.torch),
        ("triton", e.triton),
        ("python", e.python),
        ("driver", e.driver),
    ]
