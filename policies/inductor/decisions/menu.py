"""The menu of a draft: its launches, and numbered decisions with the change of each. Imports no torch.

A policy, a language model or a person reads the prompt and answers with 1 to 4 numbers, or `stop`:

    target sm_90, 2 launches, 0.29 MB, 2.1 M operations; plan: default
    launch 1: addmm_1 gelu_2, 64x128, 0.13 MB, 1.6 M operations
    ...
    1  value@gelu_2 = store: write the value to memory once (-0.06 MB, +0 launches, -0.2 M operations)
    ...

    menu = menu_of(session, session.default, "sm_90")
    plan = menu.apply("1 3")
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from kernelwright.policies.base import Value
from kernelwright.policies.inductor.decisions.plan import Choice, Plan
from kernelwright.policies.inductor.decisions.registry import DECISIONS
from kernelwright.policies.inductor.decisions.session import LoweredPlan, PlanSession
from kernelwright.policies.inductor.decisions.static_facts import LaunchFacts

MAX_ACTIONS = 14
"""Numbered actions: with the launches they make a prompt of at most about 900 tokens."""
MAX_LAUNCHES = 8
"""Launches shown, those with the most bytes."""
MAX_OPERATORS = 6
"""Operators shown of a launch."""
MAX_NUMBERS = 4
"""Largest number of actions in a reply."""
STOP = "stop"

QUESTION = f"Answer with one to {MAX_NUMBERS} numbers, or `{STOP}`."


class MenuRefused(Exception):
    """Raised for a reply without legal actions. The message is a single line."""


class PlanAction(Value):
    """A legal choice with its static change."""

    choice: Choice
    bytes: int
    """Change of the predicted bytes of all launches."""
    launches: int
    operations: int

    def line(self, number: int) -> str:
        """Returns the numbered line of a prompt."""
        sentence = DECISIONS[self.choice.decision].alternatives[self.choice.alternative]
        change = (
            f"{self.bytes / 1e6:+.2f} MB, {self.launches:+d} launches, "
            f"{self.operations / 1e6:+.1f} M operations"
        )
        return f"{number}  {self.choice}: {sentence} ({change})"


class LaunchMeasurement(Value):
    """Measurements of a launch on a GPU; None for a figure without a measurement."""

    milliseconds: float | None = None
    occupancy: float | None = None
    """Resident warps over the GPU's maximum, 0 to 1."""
    spilled_bytes: int | None = None
    roofline: float | None = None
    """Share of the speed of light, 0 to 1."""

    def words(self) -> str:
        """Returns the measured facts, each after a comma."""
        parts = [
            "" if self.milliseconds is None else f", {self.milliseconds:.4f} ms",
            "" if self.occupancy is None else f", occupancy {self.occupancy:.0%}",
            f", {self.spilled_bytes} bytes spilled" if self.spilled_bytes else "",
            "" if self.roofline is None else f", {self.roofline:.0%} of the roofline",
        ]
        return "".join(parts)


class PlanMenu(Value):
    """A lowered plan, and the legal actions from there."""

    lowered: LoweredPlan
    target: str
    actions: tuple[PlanAction, ...] = ()
    """The first action has number 1."""

    def prompt(self, measured: Mapping[int, LaunchMeasurement] | None = None) -> str:
        """Returns the menu as a prompt. measured: measurements by the number of a launch, from 1."""
        facts = self.lowered.facts
        lines = [
            f"target {self.target}, {len(facts.launches)} launches, {facts.bytes / 1e6:.2f} MB, "
            f"{facts.operations / 1e6:.1f} M operations; plan: {self.lowered.plan}"
        ]
        numbered = list(enumerate(facts.launches, 1))
        largest = sorted(numbered, key=lambda pair: -pair[1].bytes)[:MAX_LAUNCHES]
        for number, launch in sorted(largest, key=lambda pair: pair[0]):
            words = (measured or {}).get(number, LaunchMeasurement()).words()
            lines.append(f"launch {number}: {_described(launch)}{words}")
        if len(numbered) > len(largest):
            lines.append(f"and {len(numbered) - len(largest)} launches with fewer bytes")
        lines += [action.line(number) for number, action in enumerate(self.actions, 1)]
        return "\n".join([*lines, QUESTION])

    def apply(self, reply: str) -> Plan:
        """Returns the plan chosen by a reply; the present plan for `stop`. Raises MenuRefused."""
        words = re.findall(r"\w+", reply)
        if words == [STOP]:
            return self.lowered.plan
        if not words or not all(word.isdecimal() for word in words) or len(words) > MAX_NUMBERS:
            raise MenuRefused(
                f"{reply.strip()[:60]!r} is not one to {MAX_NUMBERS} numbers or `{STOP}`"
            )
        plan = self.lowered.plan
        for word in dict.fromkeys(words):
            number = int(word)
            if not 1 <= number <= len(self.actions):
                raise MenuRefused(f"there is no action {number}: they are 1 to {len(self.actions)}")
            choice = self.actions[number - 1].choice
            # Two numbers may name alternatives of the same decision.
            earlier = plan.alternative_at(choice.decision, choice.site)
            if earlier not in (None, choice.alternative):
                raise MenuRefused(f"{choice.decision}@{choice.site} is decided twice")
            plan = plan.with_choice(choice)
        return plan


def menu_of(
    session: PlanSession,
    lowered: LoweredPlan,
    target: str,
    has_time: Callable[[], bool] = lambda: True,
) -> PlanMenu:
    """Returns the most promising legal actions from a lowered plan, each counted with the plan so far.

    has_time: asked before each count; False ends the counting, and the actions so far are returned.
    """
    counted: list[tuple[tuple[int, int, int], PlanAction]] = []
    for choice in lowered.choices:
        if not has_time():
            break
        further = session.count(lowered.plan.with_choice(choice))
        if further.refused:
            continue
        facts = further.facts
        action = PlanAction(
            choice=choice,
            bytes=facts.bytes - lowered.facts.bytes,
            launches=len(facts.launches) - len(lowered.facts.launches),
            operations=facts.operations - lowered.facts.operations,
        )
        counted.append((facts.rank, action))
    # By text among equals, so that a prompt does not change between runs.
    counted.sort(key=lambda pair: (pair[0], str(pair[1].choice)))
    actions = tuple(action for _, action in counted[:MAX_ACTIONS])
    return PlanMenu(lowered=lowered, target=target, actions=actions)


def _described(launch: LaunchFacts) -> str:
    operators = " ".join(launch.operators[:MAX_OPERATORS])
    hidden = len(launch.operators) - MAX_OPERATORS
    if hidden > 0:
        operators += f" and {hidden} more"
    library = " (library)" if launch.is_library else ""
    sizes = "x".join(map(str, launch.sizes))
    return (
        f"{operators}{library}, {sizes}, {launch.bytes / 1e6:.2f} MB, "
        f"{launch.operations / 1e6:.1f} M operations"
    )
