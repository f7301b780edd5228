"""Drafts the most promising plans of the compiler's decisions, judges them, and chooses one (`agent solve --variants`).

The problem is traced once and lowered for each plan. Every draft is judged at the problem's own sizes, and on a GPU
timed there. The best of those is judged at all sizes; if it fails, the next is. Without a GPU nothing is timed: plans
are ranked by predicted bytes, then launches, then operations.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from kernelwright.agent.loop.time_limit import TimeLimitReached, judged_until
from kernelwright.policies.base import Value
from kernelwright.policies.deadlines import seconds_until
from kernelwright.policies.inductor.decisions.ranking import promise_of, promising_plans
from kernelwright.policies.inductor.decisions.registry import is_predictable
from kernelwright.policies.inductor.decisions.session import LoweredPlan, PlanSession
from kernelwright.policies.inductor.draft import Draft

if TYPE_CHECKING:
    from kernelwright.tools.evaluation.pipeline import Evaluator, Options
    from kernelwright.tools.problem import Problem
    from kernelwright.tools.report import Report

SEARCH_SECONDS = 300.0
"""Seconds for counting and drafting plans if the run has no deadline."""
SEARCH_SHARE = 0.5
"""Share of the remaining time that counting and drafting may take; the rest is the judge's."""
JUDGING_SHARE = 0.6
"""Share of the time after the search for verdicts on plans; the rest is for the run's verdict on the chosen draft."""
NOT_TIMED = "nothing was timed: plans are ranked by predicted bytes, then launches, then operations"


class PlanOutcome(Value):
    """A plan that was drafted, and its fate."""

    plan: str
    """The decisions that differ from the compiler's; `default` for none."""
    launches: int
    bytes: int
    """Predicted bytes at the problem's own sizes."""
    operations: int
    verdict: str
    """`correct`, or the judge's reason at the problem's own sizes; `not judged` if time ran out."""
    speedup: float | None = None
    """Median speed over eager; None without a GPU."""
    chosen: bool = False
    reason: str = ""
    """Why the plan was chosen, or why it was not."""


class PlansTried(Value):
    """All plans that were drafted for a problem, the chosen one among them."""

    outcomes: tuple[PlanOutcome, ...] = ()
    note: str = ""

    def as_markdown(self) -> str:
        """Returns the table that is stored in front of the chosen draft."""
        if not self.outcomes:
            return ""
        lines = [
            "| plan | launches | predicted MB | verdict | over eager | chosen |",
            "|---|---|---|---|---|---|",
        ]
        for outcome in self.outcomes:
            speed = "" if outcome.speedup is None else f"{outcome.speedup:.2f}"
            cells = [
                outcome.plan, str(outcome.launches), f"{outcome.bytes / 1e6:.2f}",
                outcome.verdict.replace("|", "/"), speed, outcome.reason.replace("|", "/"),
            ]  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |")
        return "\n".join([*lines, "", *([self.note] if self.note else [])])


class VariantChooser:
    """Chooses a plan for one problem."""

    def __init__(
        self,
        evaluator: Evaluator,
        options: Options,
        variants: int,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """variants: plans drafted beside the default. options: those of the run's verdicts."""
        self._evaluator, self._options = evaluator, options
        self._variants, self._say = variants, say
        self.tried = PlansTried()
        """The plans of the last choice."""

    def choose(
        self, problem: Problem, session: PlanSession, deadline: float | None = None
    ) -> Draft:
        """Returns the chosen plan's draft; the default draft, with its refusal, if there is no draft at all."""
        if session.default.refused:
            return session.default.draft
        seconds = _search_seconds(deadline)
        plans = promising_plans(session, self._variants, seconds, self._say)
        judging_end = _judging_end(deadline)
        judged: list[tuple[LoweredPlan, Report | None]] = []
        for number, plan in enumerate(plans, 1):
            self._say(f"judging plan {number} of {len(plans)}: {plan.plan}")
            judged.append((plan, self._judge(problem, plan, judging_end)))
        return self._chosen(problem, judged, judging_end)

    def _judge(
        self, problem: Problem, plan: LoweredPlan, deadline: float | None, sizes: int = 0
    ) -> Report | None:
        """Judges a plan's draft at the problem's own sizes and `sizes` more; None if no time is left."""
        if seconds_until(deadline) == 0.0:
            return None

        def judge(options: Options, say: Callable[[str], None]) -> Report:
            return self._evaluator.evaluate(problem, plan.draft.source, options, progress=say)

        options = self._options.with_(torch_compile=False, profile=not sizes, sizes=sizes)
        try:
            return judged_until(deadline, options, judge, lambda _: None)
        except TimeLimitReached:
            return None

    def _chosen(
        self,
        problem: Problem,
        judged: list[tuple[LoweredPlan, Report | None]],
        deadline: float | None,
    ) -> Draft:
        """Takes the best correct plan that is right at other sizes, too, and records all plans' fates."""
        correct = [(plan, report) for plan, report in judged if report and report.correct]
        is_timed = any(report.speedup for _, report in correct)
        default = judged[0][0]
        # Stable: among equals the default comes first.
        correct.sort(key=lambda pair: (-(pair[1].speedup or 0.0), *promise_of(pair[0], default)))
        failed: dict[str, str] = {}
        chosen = judged[0][0]
        for plan, _ in correct:
            self._say(f"judging the best plan at other sizes: {plan.plan}")
            report = self._judge(problem, plan, deadline, sizes=self._options.sizes)
            if report is None or report.correct:
                chosen = plan
                break
            failed[str(plan.plan)] = _one_line(report.explanation)
        best = "the fastest" if is_timed else "the fewest predicted bytes"
        outcomes = []
        for plan, report in judged:
            reason = failed.get(str(plan.plan)) or _loss(plan, chosen, is_timed)
            if report is None or not report.correct:
                reason = "not correct" if report else "no time"
            if plan is chosen:
                reason = best if any(plan is pair[0] for pair in correct) else "the default"
                if wrong := failed.get(str(plan.plan)):
                    reason = f"the default: no plan is correct at other sizes ({wrong})"
            outcomes.append(_outcome(plan, report, plan is chosen, reason))
        note = "" if self._evaluator.on_gpu else NOT_TIMED
        self.tried = PlansTried(outcomes=tuple(outcomes), note=note)
        return chosen.draft.with_(preface=self.tried.as_markdown())


def _outcome(plan: LoweredPlan, report: Report | None, chosen: bool, reason: str) -> PlanOutcome:
    verdict = "not judged"
    if report is not None:
        verdict = "correct" if report.correct else _one_line(report.explanation)
    return PlanOutcome(
        plan=str(plan.plan),
        launches=len(plan.facts.launches),
        bytes=plan.facts.bytes,
        operations=plan.facts.operations,
        verdict=verdict,
        speedup=report.speedup if report else None,
        chosen=chosen,
        reason=reason,
    )


def _loss(plan: LoweredPlan, chosen: LoweredPlan, is_timed: bool) -> str:
    """Returns why a correct plan was not chosen."""
    if is_timed:
        return "slower"
    if not is_predictable(plan.plan):
        return "only a timing speaks for it"
    change = plan.facts.bytes / max(chosen.facts.bytes, 1) - 1
    return f"{change:+.1%} predicted bytes" if change else "as many predicted bytes"


def _one_line(text: str) -> str:
    return " ".join(text.split())[:160]


def _search_seconds(deadline: float | None) -> float:
    """Returns the seconds for counting and drafting plans."""
    seconds = seconds_until(deadline)
    return SEARCH_SECONDS if seconds is None else seconds * SEARCH_SHARE


def _judging_end(deadline: float | None) -> float | None:
    """Returns the time of the monotonic clock at which verdicts on plans end; None without a deadline."""
    seconds = seconds_until(deadline)
    return None if seconds is None else time.monotonic() + JUDGING_SHARE * seconds
