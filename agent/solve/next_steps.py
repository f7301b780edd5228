"""Suggests next steps after a run without a correct kernel: the furthest candidate, the nearest
solved problem, and options or policies that could go further.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.agent.loop.attempts import JudgedAttempt
from kernelwright.agent.loop.search import SearchKind
from kernelwright.agent.loop.settings import Settings
from kernelwright.agent.loop.stopping import PAUSING_REASONS, StopReason
from kernelwright.agent.problems.finding import catalogue
from kernelwright.agent.problems.similarity import Similar, most_similar
from kernelwright.policies.base import Value
from kernelwright.policies.inductor.draft import POLICY_NAME as COMPILER
from kernelwright.store.database import Store
from kernelwright.store.records import CandidateFilter
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Fault, Report

MIN_LIKENESS = 0.1
"""Similarity (agent/problems/similarity.py) below which two problems have nothing useful in
common.
"""
LARGER_POLICY = "a larger policy: --policy openai:MODEL@URL, vllm:PATH or transformers:PATH"
OWN_WORK_FAULTS = (Fault.FALLBACK, Fault.NO_KERNEL)


class NextSteps(Value):
    """Suggestions after a run without a correct kernel."""

    reached: str
    """The highest rung of any candidate, its turn, and its failure."""
    compiler: str = ""
    """Reason why the compiler drafted nothing (an operator or a line); empty if the compiler
    drafted, or was not asked.
    """
    nearest: str = ""
    """The nearest problem of the catalogue, solved problems of this database first; empty if none
    is near.
    """
    options: tuple[str, ...]
    """Options that could go further, the most promising first, one line each."""


def next_steps(
    problem: Problem,
    settings: Settings,
    attempts: Sequence[JudgedAttempt],
    reason: StopReason,
    store: Store,
    refused: str = "",
) -> NextSteps | None:
    """Returns suggestions; None if a kernel is correct, if the same command continues the run, or
    if the problem itself cannot be used.

    refused: reason why the compiler drafted nothing.
    """
    if any(attempt.correct for attempt in attempts):
        return None
    if reason in PAUSING_REASONS or reason in (StopReason.PROBLEM, StopReason.UNPRICED):
        return None
    furthest = max(attempts, key=lambda attempt: attempt.rank, default=None)
    return NextSteps(
        reached=_reached(furthest, len(attempts)),
        compiler=refused,
        nearest=_nearest(problem, store),
        options=(
            *_past_the_compiler(settings, refused),
            *_options(settings, attempts, reason, refused),
        ),
    )


def _reached(furthest: JudgedAttempt | None, turns: int) -> str:
    if furthest is None or furthest.report is None:
        return "no candidate was judged"
    return f"turn {furthest.turn + 1} of {turns} came furthest: it {furthest.report.explanation}"


def _nearest(problem: Problem, store: Store) -> str:
    """Describes the most similar problem; of equally similar problems, a solved problem of this
    database.
    """
    near = [
        similar
        for similar in most_similar(problem, catalogue(), 5)
        if similar.likeness >= MIN_LIKENESS
    ]
    if not near:
        return ""
    solved: dict[str, int] = {}
    for similar in near:
        trajectory_id = _solved_in(store, similar.problem)
        if trajectory_id is not None:
            solved[similar.problem] = trajectory_id
    best = next((similar for similar in near if similar.problem in solved), near[0])
    common = f"{best.problem} of the catalogue, which has {_listed(best)} too"
    if best.problem in solved:
        return f"{common}; it is solved in trajectory {solved[best.problem]}: agent inspect {solved[best.problem]}"
    return f"{common}: agent solve {best.problem}, and begin from its kernel with --draft FILE"


def _listed(similar: Similar) -> str:
    return ", ".join(similar.shared[:4])


def _solved_in(store: Store, name: str) -> int | None:
    """Returns the latest trajectory of this problem with a correct kernel."""
    candidates = store.candidates(
        CandidateFilter(problem=name, suite="catalogue", correct=True), limit=1
    )
    return candidates[0].trajectory.id if candidates else None


def _options(
    settings: Settings, attempts: Sequence[JudgedAttempt], reason: StopReason, refused: str
) -> list[str]:
    furthest = max(attempts, key=lambda attempt: attempt.rank, default=None)
    report = furthest.report if furthest else None
    failure = report.failure if report else None
    options = []
    if report is not None and _random(report):
        options.append(
            "a reference that is not random: put .eval() on the module, set dropout to 0, or make the random numbers "
            "an input of forward"
        )
    if settings.policy == COMPILER:
        options.append(
            "a policy that writes: --policy embedded, or "
            + LARGER_POLICY.removeprefix("a larger policy: ")
        )
    elif not refused and not any(a.origin.is_draft for a in attempts):
        options.append("a first draft by the compiler: --draft compiler")
    if settings.own_work == "strict" and failure and failure.fault in OWN_WORK_FAULTS:
        options.append("kernels for a part of the work, torch's for the rest: --own-work share:0.5")
    unreadable = furthest is not None and (furthest.cut_off or furthest.unreadable)
    if reason is StopReason.FORMAT_ERRORS and unreadable:
        options.append("longer replies: --reply-tokens 16384")
    if settings.policy.startswith("embedded"):
        options.append(LARGER_POLICY)
    if reason is StopReason.WALL:
        options.append(
            f"more time: --max-minutes {max(10, round(4 * (settings.budgets.minutes or 1)))}"
        )
    if reason is StopReason.TURNS and settings.policy != COMPILER:
        options.append(f"more turns: --turns {2 * (settings.budgets.turns or 10)}")
    out_of_turns = reason is StopReason.TURNS and settings.search is SearchKind.SERIAL
    if reason is StopReason.STUCK or out_of_turns:
        options.append("other drafts: --search best-of-n --width 8 --temperature 0.9")
    return [*options, "a kernel of your own to begin with: --draft FILE"]


def _past_the_compiler(settings: Settings, refused: str) -> list[str]:
    """Returns remedies for the compiler's refusal."""
    if "depends on the values of a tensor" in refused:
        return [
            "a reference without that branch: torch.where or a mask in place of if, nonzero and boolean indices"
        ]
    if refused.startswith("no kernel of its own") and not settings.partial:
        return ["kernels for the rest, with that operator left to torch: --partial"]
    return []


def _random(report: Report) -> bool:
    return any(stage and stage.random_outputs for stage in (report.interpreted, report.correctness))
