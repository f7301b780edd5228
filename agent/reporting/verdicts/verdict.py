"""Renders a report: the verdict, the ladder, the checks, the kernels, the speed, and the
isolation.
"""

from __future__ import annotations

import math

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernelwright.agent.reporting.verdicts.failure import failure_view, fault_name
from kernelwright.agent.reporting.verdicts.measurements import kernels_view, matrix_view, speed_view
from kernelwright.agent.reporting.verdicts.shape_table import shapes_view
from kernelwright.agent.reporting.words import (
    BAD,
    GOOD,
    LABEL,
    QUIET,
    WARN,
    facts_table,
    format_counts,
    format_percent,
    quoted_text,
)
from kernelwright.tools.report import (
    CorrectnessResult,
    Failure,
    Fault,
    LayoutCheck,
    OwnWork,
    Report,
    ReportOutcome,
    Rung,
    SizeOutcome,
    Tried,
)

CPU_ONLY_REMARK = (
    "on a CPU, interpreted, at small sizes: right so far, and nothing is known of its speed"
)

WORDS_OF_OUTCOME = {SizeOutcome.OUTSIDE_CONTRACT: "outside the contract"}
"""Words for outcomes of a size that differ from their values."""
STYLE_OF_OUTCOME = {
    SizeOutcome.RIGHT: GOOD,
    SizeOutcome.WRONG: BAD,
    SizeOutcome.OUTSIDE_CONTRACT: WARN,
    SizeOutcome.REFUSED: WARN,
    SizeOutcome.UNUSED: QUIET,
}

FAULTS_OF_OTHERS_WORK = frozenset({Fault.FALLBACK, Fault.NO_KERNEL, Fault.CHEAT})


def report_view(report: Report, command: str = "", seconds: float | None = None) -> RenderableType:
    """Renders a report in the order of a kernel engineer's questions; stages that were not
    reached are omitted.

    command: the command of the report, without its seed. seconds: since the start of the command;
    None shows the verdict's seconds.
    """
    parts: list[RenderableType] = [
        headline(report),
        facts_table([("rungs", ladder(report)), *_findings(report, command)]),
    ]
    if report.shapes:
        parts.insert(1, shapes_view(report))
    if report.failure:
        parts.append(failure_view(report.failure, report.ended_at))
    elif report.explanation:
        parts.append(Text(report.explanation, style=WARN))
    parts += _compiled(report)
    if report.profile:
        parts.append(speed_view(report.profile))
    parts.append(facts_table([*_circumstances(report), ("took", _took(report, seconds))]))
    if report.output.strip():
        parts.append(
            Group(
                Text("what the candidate printed:", style=LABEL),
                quoted_text(report.output.rstrip(), QUIET),
            )
        )
    return Group(*parts)


def headline(report: Report) -> Text:
    """Formats `correct  fused_softmax, judged on NVIDIA H200` or `mismatch  ...`."""
    if report.correct:
        verdict = ("correct", GOOD)
    else:
        unjudged = "needs a GPU" if report.needs_gpu else "not checked"
        is_wrong = report.failure is not None and report.outcome is ReportOutcome.INCORRECT
        verdict = (
            (fault_name(report.failure), BAD) if report.failure and is_wrong else (unjudged, WARN)
        )
    return Text.assemble(
        verdict, "  ", (report.problem, "bold"), ", ", quoted_text(_judged_on(report))
    )


def _judged_on(report: Report) -> str:
    if report.correctness is None and report.interpreted is None:
        return "never run"
    on_cpu = report.judged_on == "cpu" or report.correctness is None
    if on_cpu:
        return CPU_ONLY_REMARK if report.correct else "judged on a CPU, interpreted, at small sizes"
    return f"judged on {report.judged_on}"


def ladder(report: Report) -> Text:
    """Formats every rung that was entered, the last of which ended the verdict: `source ok >
    compile ok > interpreted fails`.
    """
    failed = report.ended_at if report.failure else None
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


def _findings(report: Report, command: str) -> list[tuple[str, object]]:
    checked = report.correctness or report.interpreted
    return [
        ("checks", _checks(checked) if checked else ""),
        ("sizes", sizes_view(checked.tried) if checked and checked.tried else ""),
        ("layouts", layouts_view(checked.layouts) if checked and checked.layouts else ""),
        ("contract", quoted_text(_contiguous_only(report), WARN)),
        ("seed", _seed(checked.seed, command) if checked and checked.seed is not None else ""),
        ("KernelBench", "" if report.correct_kb is None else _kernelbench(report)),
        ("own work", _own_work(report.own_work, report.failure) if report.own_work else ""),
        (
            "mode",
            quoted_text(f"judged in eval mode: {report.eval_mode}" if report.eval_mode else ""),
        ),
        ("reward", quoted_text(_reward(report), WARN)),
        ("degenerate", Text(_degenerate(report), style=WARN)),
        ("advice", quoted_text("\n".join(report.advice), WARN)),
    ]


def _reward(report: Report) -> str:
    """Explains why a correct candidate earns no full reward, unless the problem is the reason;
    otherwise empty.
    """
    if not report.correct or report.degenerate or report.reward_eligible:
        return ""
    return f"no full reward: {report.reward_ineligible_because}"


def sizes_view(tried: tuple[Tried, ...]) -> Table:
    """Renders a line for each size: the changed integers of the reference, the strategy, the
    reason, and the outcome.
    """
    table = Table.grid(padding=(0, 2))
    table.add_column(overflow="fold")
    for _ in range(4):
        table.add_column()
    for size in tried:
        sizes = (
            " ".join(f"{name}={value}" for name, value in size.sizes.items()) or "the problem's own"
        )
        why = size.why if size.sizes or size.why != "the problem's own" else ""
        words = WORDS_OF_OUTCOME.get(size.outcome, size.outcome.value)
        outcome = Text(words, style=STYLE_OF_OUTCOME[size.outcome])
        strategy, message = quoted_text(size.strategy, QUIET), quoted_text(size.message, limit=200)
        table.add_row(quoted_text(sizes), strategy, quoted_text(why, QUIET), outcome, message)
    return table


def layouts_view(checks: tuple[LayoutCheck, ...]) -> Table:
    """Renders a line for each call on inputs in other memory layouts: the layouts, and the
    outcome.
    """
    table = Table.grid(padding=(0, 2))
    table.add_column(overflow="fold")
    table.add_column()
    table.add_column(overflow="fold")
    for check in checks:
        layouts = ", ".join(f"{name} {layout}" for name, layout in check.layouts.items())
        words = WORDS_OF_OUTCOME.get(check.outcome, check.outcome.value)
        outcome = Text(words, style=STYLE_OF_OUTCOME[check.outcome])
        table.add_row(
            quoted_text(layouts, limit=400), outcome, quoted_text(check.message, limit=200)
        )
    return table


def _contiguous_only(report: Report) -> str:
    """Warns of a kernel that counts as correct although it ignores strides."""
    if not report.correct or not report.ignores_strides:
        return ""
    return f"contiguous inputs only: {report.ignores_strides}"


def _seed(seed: int, command: str) -> Text:
    """Formats the seed, and the command that repeats the verdict."""
    return Text.assemble(
        f"{seed}, which repeats this verdict: ",
        quoted_text(f"{command or 'agent check ...'} --seed {seed}"),
    )


def _kernelbench(report: Report) -> str:
    return f"its own rule says {'correct' if report.correct_kb else 'incorrect'}"


def _degenerate(report: Report) -> str:
    passes = ", ".join(report.degenerate)
    return f"this problem cannot tell a right answer from: {passes}" if passes else ""


def _checks(result: CorrectnessResult) -> Text:
    """Formats the number of comparisons that passed, the worst of them, and their sizes."""
    passed = sum(check.passed for check in result.checks)
    text = Text(f"{passed} of {len(result.checks)} passed")
    ratios = [c.error_ratio for c in result.checks if c.error_ratio is not None]
    if finite := [ratio for ratio in ratios if math.isfinite(ratio)]:
        text.append(f", error at most {max(finite):.3g} of eager's own")
    if len(finite) < len(ratios):
        text.append(", an error where eager has none")
    if result.deterministic is not None:
        text.append(
            ", two calls equal bit for bit"
            if result.deterministic
            else ", two calls differ in last bits"
        )
    if result.sizes and not result.tried:
        text.append(f", sizes {' '.join(f'{k}={v}' for k, v in result.sizes.items())}")
    if result.weights_reloaded is False:
        text.append(", weights could not be matched with the reference's", style=WARN)
    for note in result.notes:
        text.append("\n").append(quoted_text(note, QUIET))
    return text


def _own_work(work: OwnWork, failure: Failure | None) -> Text:
    """Formats the verdict on own work; `not judged` if the candidate failed for another reason."""
    if work.accepted:
        verdict = ("its own", GOOD)
    elif failure and failure.fault in FAULTS_OF_OTHERS_WORK:
        verdict = ("not its own", BAD)
    else:
        verdict = ("not judged", QUIET)
    text = Text.assemble(verdict, f" ({work.mode})")
    if work.share is not None:
        text.append(
            f", {format_percent(work.share)} of {work.share_of.replace('_', ' ') or 'the work'} in its own kernels"
        )
    if work.needed is False:
        text.append(", and the output does not depend on them", style=BAD)
    for label, census in (
        ("launches", work.census.launches),
        ("torch computes", work.census.compute_ops),
    ):
        if census:
            text.append(f"\n{label}: ").append(quoted_text(format_counts(census)))
    return text


def _compiled(report: Report) -> list[RenderableType]:
    if len(report.compiles) > 1:
        return [matrix_view(report.compiles)]
    if report.compile is None:
        return []
    view = kernels_view(report.compile)
    doing = "compiled for" if report.compile.passed else "not compiled for"
    title = Text(f"{doing} {report.compile.target}, {report.compile.seconds:.2f} s", style=LABEL)
    notes = [quoted_text(note, QUIET) for note in report.compile.notes]
    return [title, *([view] if view is not None else []), *notes]


def _circumstances(report: Report) -> list[tuple[str, object]]:
    isolation, environment = report.isolation, report.environment
    versions = [f"{name} {value}" for name, value in _versions(report) if value]
    return [
        ("isolation", ", ".join(isolation.active) if isolation else ""),
        (
            "not isolated",
            quoted_text("\n".join(isolation.missing), WARN)
            if isolation and isolation.missing
            else "",
        ),
        ("made with", ", ".join(versions)),
        ("on", ", ".join(part for part in (environment.gpu, environment.host) if part)),
        ("warnings", quoted_text("\n".join(_unsaid(report)), WARN)),
    ]


def _took(report: Report, seconds: float | None) -> str:
    """Formats `8.4 s, the verdict 2.51 s`."""
    verdict = f"{report.seconds:.2f} s{' (from the cache)' if report.cached else ''}"
    return verdict if seconds is None else f"{seconds:.1f} s, the verdict {verdict}"


def _unsaid(report: Report) -> list[str]:
    """Returns the warnings that are not displayed elsewhere: missing layers and other targets
    have their own lines.
    """
    shown = list(report.isolation.missing) if report.isolation else []
    shown += [c.failure.message for c in report.compiles[1:] if c.failure]
    return [warning for warning in report.warnings if not any(part in warning for part in shown)]


def _versions(report: Report) -> list[tuple[str, str]]:
    e = report.environment
    return [
        ("evaluator", e.evaluator),
        ("torch", e.torch),
        ("triton", e.triton),
        ("python", e.python),
        ("driver", e.driver),
    ]
