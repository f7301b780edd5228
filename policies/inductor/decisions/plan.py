"""Reads and writes plans: the decisions of a draft other than the compiler's defaults.

A choice is written `decision@site = alternative`, and a plan is its choices in order of their texts:

    fuse@addmm_1+relu_2 = apart; value@gelu_3 = recompute

A site is the name of an operator in the traced graph, two of these, or `all`. The empty plan is written `default`.
Imports no torch.
"""

from __future__ import annotations

import re
from typing import Self

from kernelwright.policies.base import Value

DEFAULT_PLAN_TEXT = "default"
WHOLE_GRAPH = "all"
"""Site of a decision about all launches of a graph."""

_CHOICE = re.compile(r"\s*(\w+)@([\w.+/]+)\s*=\s*(\w+)\s*")


class PlanRefused(Exception):
    """Raised for a text without the form of a plan, and for a decision not open in the graph.

    The message is a single line.
    """


class Choice(Value):
    """An alternative of a decision at a site."""

    decision: str
    """Name of the decision in the registry, such as `fuse`."""
    site: str
    alternative: str

    def __str__(self) -> str:
        return f"{self.decision}@{self.site} = {self.alternative}"


class Plan(Value):
    """Choices other than the compiler's defaults, at most one for each decision and site."""

    choices: tuple[Choice, ...] = ()

    def __str__(self) -> str:
        return "; ".join(sorted(map(str, self.choices))) or DEFAULT_PLAN_TEXT

    @property
    def is_default(self) -> bool:
        """Whether every decision is the compiler's own."""
        return not self.choices

    @classmethod
    def parse(cls, text: str) -> Self:
        """Returns the plan of a text, the inverse of `str`. Raises PlanRefused."""
        if text.strip() in ("", DEFAULT_PLAN_TEXT):
            return cls()
        plan = cls()
        for part in text.split(";"):
            match = _CHOICE.fullmatch(part)
            if match is None:
                raise PlanRefused(f"{part.strip()!r} is not `decision@site = alternative`")
            choice = Choice(decision=match[1], site=match[2], alternative=match[3])
            if plan.alternative_at(choice.decision, choice.site) is not None:
                raise PlanRefused(f"{choice.decision}@{choice.site} is decided twice")
            plan = plan.with_choice(choice)
        return plan

    def with_choice(self, choice: Choice) -> Self:
        """Returns the plan with a choice in place of any other at the site."""
        site = (choice.decision, choice.site)
        choices = [c for c in self.choices if (c.decision, c.site) != site]
        return self.with_(choices=tuple(sorted([*choices, choice], key=str)))

    def alternative_at(self, decision: str, site: str) -> str | None:
        """Returns the chosen alternative of a decision at a site; None for the default."""
        for choice in self.choices:
            if (choice.decision, choice.site) == (decision, site):
                return choice.alternative
        return None
