"""Takes decisions while a graph is lowered, and records which ones were open.

Wherever the compiler chooses for speed, `decide` is called with the default and the legal alternatives. It answers
with the plan's alternative, or with the default where the plan is silent or no plan is being lowered. The record of
all calls is the list of the draft's open decisions. Imports no torch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar

from kernelwright.policies.base import Value
from kernelwright.policies.inductor.decisions.plan import Choice, Plan, PlanRefused
from kernelwright.policies.inductor.decisions.registry import DECISIONS


class OpenDecision(Value):
    """Decision at a site of a graph, with its legal alternatives."""

    decision: str
    site: str
    default: str
    alternatives: tuple[str, ...]
    """All legal alternatives, the default among them."""

    @property
    def choices(self) -> tuple[Choice, ...]:
        """Legal choices other than the default."""
        return tuple(
            Choice(decision=self.decision, site=self.site, alternative=alternative)
            for alternative in self.alternatives
            if alternative != self.default
        )


class ActivePlan:
    """Plan during its lowering, with the decisions open so far."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._opened: dict[tuple[str, str], OpenDecision] = {}
        self.step = ""
        """Prefix of sites in the step of a loop: `step_0/`. Empty in forward itself."""

    def restart(self) -> None:
        """Forgets the open decisions: the graph is lowered from its beginning again."""
        self._opened.clear()
        self.step = ""

    def decide(self, decision: str, site: str, default: str, alternatives: Sequence[str]) -> str:
        """Returns the alternative to take, and records the decision at its first call."""
        key = (decision, f"{self.step}{site}")
        opened = self._opened.get(key)
        if opened is None:
            # In the registry's order, so that menus and plans do not depend on the caller's.
            legal = tuple(name for name in DECISIONS[decision].alternatives if name in alternatives)
            opened = OpenDecision(
                decision=decision, site=key[1], default=default, alternatives=legal
            )
            self._opened[key] = opened
        chosen = self._plan.alternative_at(*key)
        # An illegal alternative is refused after the lowering, when all open sites are known.
        return chosen if chosen in opened.alternatives else default

    def chosen(self, decision: str, site: str) -> str | None:
        """Returns the plan's alternative at a site without recording the decision as open."""
        return self._plan.alternative_at(decision, f"{self.step}{site}")

    @property
    def opened(self) -> tuple[OpenDecision, ...]:
        """The open decisions in the order in which the compiler reached them."""
        return tuple(self._opened.values())

    def require_legal(self) -> None:
        """Raises PlanRefused if a choice of the plan has no open decision or alternative."""
        for choice in self._plan.choices:
            opened = self._opened.get((choice.decision, choice.site))
            if choice.decision not in DECISIONS:
                decisions = ", ".join(DECISIONS)
                raise PlanRefused(f"there is no decision {choice.decision!r}: choose {decisions}")
            if opened is None:
                sites = [site for name, site in self._opened if name == choice.decision]
                open_sites = ", ".join(sites) or "nowhere in this graph"
                raise PlanRefused(
                    f"{choice.decision}@{choice.site} is not open under this plan: "
                    f"{choice.decision} is open at {open_sites}"
                )
            if choice.alternative not in opened.alternatives:
                legal = ", ".join(opened.alternatives)
                raise PlanRefused(
                    f"{choice.decision}@{choice.site} cannot be {choice.alternative!r}: legal are {legal}"
                )


# A context variable: Inductor's hooks take no argument of ours.
_current: ContextVar[ActivePlan | None] = ContextVar("deciding", default=None)


@contextlib.contextmanager
def deciding(plan: Plan) -> Iterator[ActivePlan]:
    """Takes the plan's decisions in the block."""
    active = ActivePlan(plan)
    token = _current.set(active)
    try:
        yield active
    finally:
        _current.reset(token)


def active_plan() -> ActivePlan | None:
    """Returns the plan being lowered; None outside of a block of `deciding`."""
    return _current.get()


def decide(decision: str, site: str, default: str, alternatives: Sequence[str]) -> str:
    """Returns the alternative of a decision at a site: the plan's, or else the default."""
    active = _current.get()
    return default if active is None else active.decide(decision, site, default, alternatives)
