"""`rl rewards`: scores every current verdict and adds the parts to the store, beside those of
other formulas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kernelwright.agent.rewards.formula import Formula
from kernelwright.agent.rewards.scoring import on_gpu, reply_of, score
from kernelwright.policies.base import Value
from kernelwright.store.database import Store
from kernelwright.store.models import CandidateState
from kernelwright.store.records import CandidateFilter

REWARDS_PER_TRANSACTION = 500
"""Number of rewards written by a transaction."""
TURNS_BETWEEN_STEPS = 100
"""Number of turns between two reports of progress."""


class StoredRewards(Value):
    """Counts of a scoring of all verdicts of a log."""

    formula: str
    verdicts: int
    stored: int
    """Number of verdicts with a new or changed result under this formula."""
    mean: float
    positive: float
    unmeasured: int
    """Number of correct candidates without a GPU verdict, if the formula needs one."""


def store_rewards(
    store: Store,
    formula: Formula,
    chosen: CandidateFilter | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> StoredRewards:
    """Scores the verdicts and stores the rewards. A second call writes nothing twice.

    `say`: called with the current step.
    """
    chosen = chosen or CandidateFilter()
    label, totals, unmeasured, stored = formula.label, [], 0, 0
    page: list[tuple[int, dict[str, float]]] = []
    for verdict_id, parts, stored_parts, measured in _scored(store, formula, chosen, say):
        totals.append(sum(parts.values()))
        unmeasured += not measured
        # Only new or changed results are written.
        if stored_parts != parts:
            page.append((verdict_id, parts))
        if len(page) >= REWARDS_PER_TRANSACTION:
            store.reward(page, label)
            stored, page = stored + len(page), []
    if page:
        store.reward(page, label)
    divisor = max(len(totals), 1)
    return StoredRewards(
        formula=label,
        verdicts=len(totals),
        stored=stored + len(page),
        mean=sum(totals) / divisor,
        positive=sum(total > 0.1 for total in totals) / divisor,
        unmeasured=unmeasured,
    )


def _scored(
    store: Store, formula: Formula, chosen: CandidateFilter, say: Callable[[str], None]
) -> Iterator[tuple[int, dict[str, float], dict[str, float] | None, bool]]:
    """Yields verdict id, parts, parts already stored, and whether all parts of the formula were
    measured.
    """
    turns = store.count(chosen.with_(state=CandidateState.JUDGED))
    for number, turn in enumerate(store.samples(chosen, formula=formula.label)):
        if number % TURNS_BETWEEN_STEPS == 0:
            say(f"scoring turn {number + 1:,} of {turns:,}")
        if turn.report is None or turn.verdict_id is None or turn.report.degenerate:
            continue
        parts = score(formula, turn.report, reply_of(turn)).parts
        # A CPU verdict of a correct kernel lacks the speed the formula may need.
        measured = on_gpu(turn.report) or not turn.report.correct or not formula.needs_gpu
        yield turn.verdict_id, parts, turn.rewards, measured
