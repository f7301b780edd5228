"""What to do after a run that found no correct kernel: how far it came, the solved problem that is nearest, and which
policy or option could go further.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.agent.loop.attempts import Attempt
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
"""Likeness (agent/problems/similarity.py) below which a problem tells nothing of another."""
LARGER_POLICY = "a larger policy: --policy openai:MODEL@URL, vllm:PATH or transformers:PATH"
OWN_WORK_FAULTS = (Fault.FALLBACK, Fault.NO_KERNEL)


class NextSteps(Value):
    """What can be done after a run without a correct kernel."""

    reached: str
    """The highest rung of any candidate, its turn, and why it went no further."""
    compiler: str = ""
    """Why the compiler drafted nothing: the operator or the line; empty where it drafted or was not asked."""
    nearest: str = ""
    """The nearest problem of the catalogue, solved ones of this database first; empty where none is near."""
    options: tuple[str, ...]
    """What could go further, the most promising first, each one line."""


def next_steps(
    problem: Problem,
    settings: Settings,
    attempts: Sequence[Attempt],
    reason: StopReason,
    store: Store,
    refused: str = "",
) -> NextSteps | None:
    """Returns what could be tried next; None where a kernel is correct, where the same command goes on, and where the
    problem itself cannot be used.

    refused: why the compiler drafted nothing.
    """
    if (
        any(a.correct for a in attempts)
        or reason in PAUSING_REASONS
        or reason in (StopReason.PROBLEM, StopReason.UNPRICED)
    ):
        return None
    furthest = max(attempts, key=lambda a: a.rank, default=None)
    return NextSteps(
        reached=_reached(furthest, len(attempts)),
        compiler=refused,
        nearest=_nearest(problem, store),
        options=(
            *_past_the_compiler(settings, refused),
            *_options(settings, attempts, reason, refused),
        ),
    )


def _reached(furthest: Attempt | None, turns: int) -> str:
    if furthest is None or furthest.report is None:
        return "no candidate was judged"
    return f"turn {furthest.turn + 1} of {turns} came furthest: it {furthest.report.explanation}"


def _nearest(problem: Problem, store: Store) -> str:
    """Returns, of equally similar problems, one with a correct kernel in this database."""
    near = [one for one in most_similar(problem, catalogue(), 5) if one.likeness >= MIN_LIKENESS]
    if not near:
        return ""
    solved = {
        one.problem: where for one in near if (where := _solved_in(store, one.problem)) is not None
    }
    best = next((one for one in near if one.problem in solved), near[0])
    common = f"{best.problem} of the catalogue, which has {_listed(best)} too"
    if best.problem in solved:
        return f"{common}; it is solved in trajectory {solved[best.problem]}: agent inspect {solved[best.problem]}"
    return f"{common}: agent solve {best.problem}, and begin from its kernel with --draft FILE"


def _listed(similar: Similar) -> str:
    return ", ".join(similar.shared[:4])


def _solved_in(store: Store, name: str) -> int | None:
    """The latest trajectory of this problem that has a correct kernel."""
    found = store.candidates(
        CandidateFilter(problem=name, suite="catalogue", correct=True), limit=1
    )
    return found[0].trajectory.id if found else None


def _options(
    settings: Settings, attempts: Sequence[Attempt], reason: StopReason, refused: str
) -> list[str]:
    furthest = max(attempts, key=lambda a: a.rank, default=None)
    report = furthest.report if furthest else None
    said = []
    if report is not None and _random(report):
        said.append(
            "a reference that is not random: put .eval() on the module, set dropout to 0, or make the random numbers "
            "an input of forward"
        )
    if settings.policy == COMPILER:
        said.append(
            "a policy that writes: --policy embedded, or "
            + LARGER_POLICY.removeprefix("a larger policy: ")
        )
    elif not refused and not any(a.origin.is_draft for a in attempts):
        said.append("a first draft by the compiler: --draft compiler")
    if (
        settings.own_work == "strict"
        and report
        and report.failure
        and report.failure.fault in OWN_WORK_FAULTS
    ):
        said.append("kernels for a part of the work, torch's for the rest: --own-work share:0.5")
    if (
        reason is StopReason.FORMAT_ERRORS
        and furthest is not None
        and any((furthest.cut_off, furthest.unreadable))
    ):
        said.append("longer replies: --reply-tokens 16384")
    if settings.policy.startswith("embedded"):
        said.append(LARGER_POLICY)
    if reason is StopReason.WALL:
        said.append(
            f"more time: --max-minutes {max(10, round(4 * (settings.budgets.minutes or 1)))}"
        )
    if reason is StopReason.TURNS and settings.policy != COMPILER:
        said.append(f"more turns: --turns {2 * (settings.budgets.turns or 10)}")
    if reason is StopReason.STUCK or (
        reason is StopReason.TURNS and settings.search is SearchKind.SERIAL
    ):
        said.append("other drafts: --search best-of-n --width 8 --temperature 0.9")
    return [*said, "a kernel of your own to begin with: --draft FILE"]


def _past_the_compiler(settings: Settings, refused: str) -> list[str]:
    """What is to be done about the compiler's refusal."""
    if "depends on the values of a tensor" in refused:
        return [
            "a reference without that branch: torch.where or a mask in place of if, nonzero and boolean indices"
        ]
    if refused.startswith("no kernel of its own") and not settings.partial:
        return ["kernels for the rest, with that operator left to torch: --partial"]
    return []


def _random(report: Report) -> bool:
    return any(stage and stage.random_outputs for stage in (report.interpreted, report.correctness))
