"""Renders the results of `agent solve`, `agent replay` and `agent recheck` for the terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from kernelwright.agent.loop.stopping import PAUSING_REASONS, StopReason
from kernelwright.agent.replay.drift import VerdictChange
from kernelwright.agent.replay.rechecked_verdicts import ChangedVerdict, Rechecks
from kernelwright.agent.replay.rejudging import Replays, RescoredRewards
from kernelwright.agent.replay.replaying import ReplayedTurn, ReplayResult
from kernelwright.agent.reporting.verdicts.failure import failure_view
from kernelwright.agent.reporting.verdicts.measurements import estimates_view
from kernelwright.agent.reporting.verdicts.shape_table import shapes_view
from kernelwright.agent.reporting.words import (
    BAD,
    GOOD,
    LABEL,
    QUIET,
    WARN,
    AdaptiveTable,
    facts_table,
    format_ratio,
    quoted_text,
)
from kernelwright.agent.solve.dry_run import DryRun
from kernelwright.agent.solve.next_steps import NextSteps
from kernelwright.agent.solve.solving import Solved
from kernelwright.agent.solve.variants import PlansTried
from kernelwright.tools.report import Environment


def solved_view(solved: Solved) -> RenderableType:
    """Renders the verdict, the path of the kernel, the stop reason, and the cost."""
    unusable = solved.stop_reason is StopReason.PROBLEM
    failed = "the problem cannot be judged" if unusable else "no correct kernel"
    verdict = ("correct", GOOD) if solved.correct else (failed, BAD)
    if solved.stop_reason in PAUSING_REASONS and not solved.correct:
        verdict = ("paused", WARN)
    parts: list[RenderableType] = [
        Text.assemble(verdict, "  ", (solved.problem, "bold"), ", ", quoted_text(solved.verified))
    ]
    if solved.report is not None and solved.report.shapes:
        parts.append(shapes_view(solved.report))
    if not solved.correct and solved.report and solved.report.failure:
        parts.append(failure_view(solved.report.failure))
    parts.append(facts_table(_rows(solved)))
    if solved.plans.outcomes:
        parts += [Text("plans of the compiler's decisions", style=LABEL), plans_view(solved.plans)]
    if solved.estimates:
        parts.append(estimates_view(solved.estimates))
    if solved.next_steps is not None:
        parts += [Text("what to do next", style=LABEL), facts_table(_next_rows(solved.next_steps))]
    if solved.note:
        parts.append(Text(f"note: {solved.note}", style=WARN))
    return Group(*parts)


def plans_view(plans: PlansTried) -> RenderableType:
    """Renders the plans that were drafted: counts, verdict, speed, and why one was chosen."""
    timed = any(outcome.speedup is not None for outcome in plans.outcomes)
    headings = ["plan", "launches", "MB", "verdict", *["over eager"] * timed, "chosen"]
    rows = []
    for outcome in plans.outcomes:
        cells = [
            quoted_text(outcome.plan, limit=400),
            Text(str(outcome.launches)),
            Text(f"{outcome.bytes / 1e6:,.2f}"),
            Text(outcome.verdict, style=GOOD if outcome.verdict == "correct" else BAD),
        ]
        if timed:
            cells.append(Text("" if outcome.speedup is None else f"{outcome.speedup:.2f}"))
        cells.append(Text(f"{'yes' if outcome.chosen else 'no'}: {outcome.reason}"))
        rows.append(cells)
    numeric = ("launches", "MB", "over eager")
    table = AdaptiveTable(headings, rows, numeric=numeric, wrapped=("plan", "verdict", "chosen"))
    return Group(table, Text(plans.note, style=QUIET)) if plans.note else table


def _rows(solved: Solved) -> list[tuple[str, object]]:
    why = solved.stop_reason.replace("_", " ")
    paused = "; the same command goes on from here" if solved.stop_reason in PAUSING_REASONS else ""
    return [
        ("kernel", solved.output or ""),
        ("written by", quoted_text(solved.written_by)),
        *(
            [("in torch", quoted_text(_torch_share(solved), limit=400))]
            if solved.left_to_torch
            else []
        ),
        *(
            [("own work", quoted_text(f"{solved.own_work}, {solved.own_work_reason}", limit=400))]
            if solved.own_work_reason
            else []
        ),
        (
            "stopped",
            Text.assemble(
                why, quoted_text(f": {solved.message}" if solved.message else ""), paused
            ),
        ),
        ("goal", f"{solved.goal} ({'reached' if solved.goal_reached else 'not reached'})"),
        ("took", _took(solved)),
        ("kept", f"trajectory {solved.trajectory_id} in {solved.database}"),
    ]


def _torch_share(solved: Solved) -> str:
    share = (
        "" if solved.own_share is None else f"; own kernels do {solved.own_share:.0%} of the work"
    )
    return f"{', '.join(solved.left_to_torch)}{share}"


def _next_rows(steps: NextSteps) -> list[tuple[str, object]]:
    return [
        ("reached", quoted_text(steps.reached, limit=400)),
        *(
            [("compiler", quoted_text(f"drafted nothing: {steps.compiler}", limit=400))]
            if steps.compiler
            else []
        ),
        ("nearest", quoted_text(steps.nearest)),
        ("try", quoted_text("\n".join(steps.options))),
    ]


def _took(solved: Solved) -> str:
    spent = solved.spent
    parts = [
        f"{spent.turns} turn{'' if spent.turns == 1 else 's'}",
        f"{spent.tokens:,} tokens",
        f"{solved.seconds:.1f} s",
    ]
    if spent.dollars is None:
        parts.append("dollars unknown")
    elif spent.dollars:
        parts.append(f"${spent.dollars:.4f}")
    if spent.gpu_seconds:
        parts.append(f"{spent.gpu_seconds:.1f} s of GPU")
    return ", ".join(parts)


def dry_run_view(plan: DryRun) -> RenderableType:
    """Renders the prompt, message by message, then the plan and the estimate."""
    parts: list[RenderableType] = []
    for message in plan.messages:
        parts += [
            Text(f"--- {message.role}", style=LABEL),
            quoted_text(message.content, limit=10**6),
        ]
    most = "unbounded" if plan.most_tokens is None else f"{plan.most_tokens:,} tokens"
    dollars = "dollars unknown" if plan.most_dollars is None else f"${plan.most_dollars:.2f}"
    parts.append(Text("--- plan", style=LABEL))
    parts.append(
        facts_table(
            [
                ("problem", plan.problem),
                ("policy", f"{plan.policy}, prompts {plan.prompt_version}"),
                (
                    "search",
                    f"{plan.search}, goal {plan.goal}, {'any number of' if plan.turns is None else plan.turns} turns",
                ),
                ("tools", f"{', '.join(plan.targets)} on {plan.device}"),
                (
                    "sampling",
                    f"temperature {plan.sampling.temperature:g}, at most {plan.sampling.max_tokens} tokens a reply",
                ),
                (
                    "estimate",
                    f"about {plan.prompt_tokens:,} tokens in the first prompt; at most {most}, {dollars}",
                ),
                ("note", plan.note),
            ]
        )
    )
    parts.append(Text("the reference works; nothing was asked or written", style=QUIET))
    return Group(*parts)


def replays_view(replays: Replays) -> RenderableType:
    """Renders a single trajectory in full, or many with a line each; then the totals."""
    if not replays.run and len(replays.trajectories) == 1:
        parts: list[RenderableType] = [trajectory_view(replays.trajectories[0], replays.executed)]
    else:
        parts = [replays_table(replays)]
    return Group(*parts, facts_table(_drift_summary(replays)))


def trajectory_view(replayed: ReplayResult, executed: bool) -> RenderableType:
    """Renders a repeated trajectory; `executed`: whether its candidates were judged again."""
    origin = (
        f", forked after candidate {replayed.forked_from_id}"
        if replayed.forked_from_id is not None
        else ""
    )
    head = Text.assemble(
        (f"trajectory {replayed.trajectory_id}  ", LABEL),
        quoted_text(replayed.problem),
        f", {replayed.policy}{origin}",
    )
    parts: list[RenderableType] = [head]
    for turn in replayed.turns:
        parts += _turn(
            turn, executed and not turn.judged, turn.trajectory_id != replayed.trajectory_id
        )
    why = replayed.stop_reason.replace("_", " ") or "not finished"
    rows = [("stopped", quoted_text(why + (f": {replayed.message}" if replayed.message else "")))]
    if replayed.unjudged:
        turns = f"{replayed.unjudged} turn{'s' * (replayed.unjudged != 1)}"
        rows.append(("unjudged", Text(f"{turns}: the command that wrote them goes on there")))
    return Group(*parts, facts_table(rows))


def _turn(turn: ReplayedTurn, keeps_verdict: bool, inherited: bool) -> list[RenderableType]:
    verdict = (
        ("correct", GOOD)
        if turn.correct
        else ((turn.fault or "not correct").replace("_", " "), BAD)
    )
    best = "none" if turn.best is None else f"turn {turn.best + 1}"
    line = Text.assemble(
        (f"turn {turn.turn + 1:<3} {turn.action:<6}  candidate {turn.candidate_id:<5} ", QUIET),
        (f"{' > '.join(turn.states):<31} ", QUIET), (f"{turn.rung:<11} ", LABEL), verdict,
        f" {format_ratio(turn.speedup)}" if turn.speedup is not None else "", (f"  best {best}", QUIET),
    )  # fmt: skip
    if turn.repeats is not None:
        line.append(f"  the same as turn {turn.repeats + 1}", QUIET)
    if inherited:
        line.append("  from the trajectory it was forked from", QUIET)
    elif keeps_verdict:
        line.append("  not run again", QUIET)
    under = [quoted_text(f"shape {shape}", QUIET) for shape in turn.shapes]
    under += [_changed(change) for change in turn.drift.changes]
    if turn.drift.note:
        under.append(Text(turn.drift.note, QUIET))
    if turn.departure:
        under.append(
            Text.assemble("today's machine would go on otherwise: ", (turn.departure, WARN))
        )
    if turn.message and not turn.correct:
        under.insert(0, quoted_text(turn.message, QUIET))
    return [line, *(Text.assemble("         ", text) for text in under)]


def _changed(change: VerdictChange) -> Text:
    of = f" of {change.of}" if change.of else ""
    return Text.assemble(
        (f"drift  {change.aspect}{of}: ", WARN),
        quoted_text(change.was),
        " -> ",
        quoted_text(change.now),
    )


def replays_table(replays: Replays) -> AdaptiveTable:
    """Renders a line for each repeated trajectory."""
    rows = []
    for replayed in replays.trajectories:
        best = next(
            (t for t in replayed.turns if t.candidate_id == replayed.best_candidate_id), None
        )
        other = sum(
            bool(turn.drift.changes) and not turn.drift.verdict_changed for turn in replayed.turns
        )
        changed = Text(str(replayed.verdicts_changed), BAD if replayed.verdicts_changed else "")
        stopped = replayed.stop_reason.replace("_", " ") or "not finished"
        rows.append(
            (
                Text(str(replayed.trajectory_id)), quoted_text(replayed.problem, limit=50),
                Text(str(len(replayed.turns))), Text("-" if best is None else f"turn {best.turn + 1}"), Text(stopped),
                changed, Text(str(other)), Text(str(replayed.rescored)),
            )
        )  # fmt: skip
    numbers = ("verdicts that differ", "other drift", "saved")
    headings = ("trajectory", "problem", "turns", "best", "stopped", *numbers)
    return AdaptiveTable(headings, rows, numeric=("turns", *numbers), wrapped=("stopped",))


def _drift_summary(replays: Replays) -> list[tuple[str, object]]:
    if not replays.executed:
        return []
    judged = sum(turn.judged for replayed in replays.trajectories for turn in replayed.turns)
    changed = replays.verdicts_changed
    if not judged:
        summary = "not known: nothing was judged again"
    else:
        summary = (
            f"{changed} of {judged} verdicts differ"
            if changed
            else f"none: {judged} verdicts are what they were"
        )
    rows: list[tuple[str, object]] = [
        ("drift", Text(summary, BAD if changed else GOOD)),
        ("tools", _tools(replays.tools) if replays.tools else ""),
        ("saved", f"{replays.saved} new verdicts, the old ones kept" if replays.saved else ""),
    ]
    if replays.interrupted:
        rows.append(
            ("note", Text("interrupted: what was saved stays, the rest was not looked at", WARN))
        )
    return rows


def _tools(tools: Environment) -> str:
    return f"evaluator {tools.evaluator}, torch {tools.torch}, triton {tools.triton}, {tools.gpu or 'CPU'}"


def rechecks_view(rechecks: Rechecks) -> RenderableType:
    """Renders the changed verdicts first, each with its reason; then the judged and the unjudged
    candidates.
    """
    lines: list[RenderableType] = [_line(change) for change in rechecks.changed]
    for unjudged in rechecks.not_judged:
        lines.append(
            quoted_text(
                f"candidate {unjudged.candidate_id} ({unjudged.problem}) was not judged: {unjudged.why}",
                WARN,
            )
        )
    return Group(*lines, facts_table(_recheck_summary(rechecks)))


def _line(change: ChangedVerdict) -> Text:
    return Text.assemble(
        (f"candidate {change.candidate_id}  ", LABEL), quoted_text(change.problem, limit=60),
        (f", trajectory {change.trajectory_id} turn {change.turn}:  ", QUIET),
        (change.was, BAD if change.was != "correct" else GOOD), " -> ",
        (change.now, GOOD if change.now == "correct" else BAD), "  ", quoted_text(change.why, QUIET, 300),
    )  # fmt: skip


def _recheck_summary(rechecks: Rechecks) -> list[tuple[str, object]]:
    judged = rechecks.before + rechecks.here
    changes = "\n".join(f"{count:>5}  {change}" for change, count in rechecks.counts.items())
    rows: list[tuple[str, object]] = [
        (
            "judged",
            f"{rechecks.here} now, {rechecks.before} before, of {rechecks.candidates} candidates with code",
        ),
        (
            "changed",
            quoted_text(
                f"{len(rechecks.changed)} of {judged} verdicts"
                if rechecks.changed
                else f"none of {judged} verdicts"
            ),
        ),
        ("", quoted_text(changes)),
        ("left", f"{rechecks.left}: the same command goes on with them" if rechecks.left else ""),
        (
            "GPU",
            f"{rechecks.only_on_a_gpu} have a GPU's verdict: judge them there"
            if rechecks.only_on_a_gpu
            else "",
        ),
        ("rewards", quoted_text("\n".join(_rewards(rewards) for rewards in rechecks.rewards))),
        ("evaluator", rechecks.evaluator),
    ]
    if rechecks.interrupted:
        rows.append(("note", Text("interrupted: what was judged is saved", style=WARN)))
    return rows


def _rewards(rewards: RescoredRewards) -> str:
    return f"{rewards.formula}: {rewards.note or f'{rewards.stored} new ones, those of earlier verdicts stay'}"
