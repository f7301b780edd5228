"""Chooses the most promising plans of a problem by their counts, without running a kernel. Imports no torch.

Every single choice is counted. Predictable choices (registry.py) with fewer bytes than the default are then joined,
the best first, as long as each makes the plan better. Plans are drafted in order of predicted bytes, then launches,
then operations, until there are enough distinct texts. A plan with an unpredictable choice gets no credit for fewer
bytes than the default's.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from kernelwright.policies.inductor.decisions.plan import Plan
from kernelwright.policies.inductor.decisions.registry import is_predictable
from kernelwright.policies.inductor.decisions.session import (
    LoweredPlan,
    PlanSession,
    without_plan_line,
)

MAX_COUNTED = 64
"""Single choices counted at most: each takes about half a second."""
MAX_JOINED = 6
"""Largest number of choices of a joined plan."""

COUNT_SHARE = 0.5
"""Share of the seconds for counts: a graph of many decisions would leave no time to draft a plan."""


def promising_plans(
    session: PlanSession,
    variants: int,
    seconds: float = math.inf,
    say: Callable[[str], None] = lambda _: None,
) -> list[LoweredPlan]:
    """Returns the default draft and up to `variants` further distinct drafts, the most promising first.

    seconds: time for counting and drafting; the plan under way at its end is the last.
    """
    start = time.monotonic()
    counted = rank_plans(session, start + COUNT_SHARE * seconds, say)
    drafts = [session.default]
    texts = {session.default.draft.source}
    for lowered in counted:
        if len(drafts) > variants or time.monotonic() >= start + seconds:
            break
        say(f"drafting plan {len(drafts)} of {variants}: {lowered.plan}")
        drafted = session.lower(lowered.plan)
        text = without_plan_line(drafted.draft.source)
        # Choices without an effect, and joins of them, give a text drafted before.
        if text and text not in texts:
            texts.add(text)
            drafts.append(drafted)
    return drafts


def rank_plans(session: PlanSession, end: float, say: Callable[[str], None]) -> list[LoweredPlan]:
    """Returns counted plans of single and of joined choices, the most promising first.

    end: time of the monotonic clock after which no plan is counted.
    """
    choices = session.default.choices[:MAX_COUNTED]
    singles: list[LoweredPlan] = []
    for number, choice in enumerate(choices, 1):
        if time.monotonic() >= end:
            break
        say(f"counting decision {number} of {len(choices)}: {choice}")
        counted = session.count(Plan().with_choice(choice))
        if not counted.refused:
            singles.append(counted)
    default = session.default

    def rank(lowered: LoweredPlan) -> tuple[tuple[int, int, int], str]:
        return promise_of(lowered, default), str(lowered.plan)

    singles.sort(key=rank)
    joined = _join(session, singles, end)
    return sorted([*joined, *singles], key=rank)


def promise_of(lowered: LoweredPlan, default: LoweredPlan) -> tuple[int, int, int]:
    """Returns a sort key of plans, the most promising first: predicted bytes, launches and operations."""
    if is_predictable(lowered.plan):
        return lowered.facts.rank
    # No credit for fewer bytes, but more bytes still count against the plan.
    return max(lowered.facts.rank, default.facts.rank)


def _join(session: PlanSession, singles: list[LoweredPlan], end: float) -> list[LoweredPlan]:
    """Joins choices with fewer bytes than the default's; returns the plan after each step."""
    default_bytes = session.default.facts.bytes
    better = [
        single
        for single in singles
        if single.facts.bytes < default_bytes and is_predictable(single.plan)
    ]
    if not better:
        return []
    best = better[0]
    joined: list[LoweredPlan] = []
    for single in better[1:MAX_JOINED]:
        if time.monotonic() >= end:
            break
        # Counted anew: two choices may save the same bytes.
        plan = best.plan.with_choice(single.plan.choices[0])
        counted = session.count(plan)
        if not counted.refused and counted.facts.rank < best.facts.rank:
            best = counted
            joined.append(counted)
    return joined
