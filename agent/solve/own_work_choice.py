"""Chooses the share of work allowed to libraries, for `--own-work auto`.

A strict draft does all work in its own kernels. A shared draft leaves products, convolutions and
attention to the library, and fuses the rest. The faster kind depends on the problem: on a GPU both
are drafted, judged and timed; without a GPU, products of half precision are left to the library,
which is known to be faster (bench/results/layers.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from kernelwright.agent.solve.drafting import Drafter, DraftKind
from kernelwright.policies.base import Value
from kernelwright.policies.inductor.draft import Draft

if TYPE_CHECKING:
    from kernelwright.agent.loop.settings import Settings
    from kernelwright.tools.evaluation.pipeline import Evaluator, Options
    from kernelwright.tools.problem import Problem

AUTOMATIC_RULE = "auto"
STRICT: Literal["strict"] = "strict"
SHARED: Literal["report"] = "report"
"""Rule of a run whose kernel may call the library: the share of own work is only reported."""
LIBRARY_GAIN = 1.26
"""Speed of shared over strict drafts of six layers of transformers in bfloat16: geometric mean on an H100
(bench/results/layers.md, 2026-11-28).
"""
ESTIMATED = (
    f"estimated without a GPU: the library's products of half precision made layers {LIBRARY_GAIN} times as fast as "
    "the draft's own; --own-work strict asks for own kernels alone"
)


class OwnWorkChoice(Value):
    """A rule of own work, with the reason for its choice."""

    rule: str = STRICT
    reason: str = ""
    """Reason for the choice; empty without a choice."""


class OwnWorkChooser:
    """Compares the drafts of both modes."""

    def __init__(
        self, drafter: Drafter, evaluator: Evaluator, options: Options, say: Callable[[str], None]
    ) -> None:
        """options: those of the run's verdicts, whose rule of own work is replaced."""
        self._drafter, self._evaluator = drafter, evaluator
        self._options, self._say = options, say

    def choose(self, problem: Problem, settings: Settings) -> OwnWorkChoice:
        """Returns the rule for a problem: the user's, or the rule with the faster draft."""
        if settings.own_work != AUTOMATIC_RULE:
            return OwnWorkChoice(rule=settings.own_work)
        if settings.draft not in (DraftKind.AUTO, DraftKind.COMPILER):
            return OwnWorkChoice()
        draft = self._drafter.function_for(problem, settings)
        shared = draft(SHARED)
        if not shared.usable or not shared.library_calls:
            return OwnWorkChoice()
        if not self._evaluator.on_gpu:
            if not shared.half_precision:
                return OwnWorkChoice()
            return OwnWorkChoice(rule=SHARED, reason=ESTIMATED)
        strict = draft(STRICT)
        if not strict.usable:
            return OwnWorkChoice(rule=SHARED, reason=f"no strict draft: {strict.refused}")
        return self._measured(problem, strict, shared)

    def _measured(self, problem: Problem, strict: Draft, shared: Draft) -> OwnWorkChoice:
        """Judges and times both drafts on the GPU."""
        speedups: dict[str, float] = {}
        for rule, candidate in ((STRICT, strict), (SHARED, shared)):
            self._say(f"timing the {'strict' if rule == STRICT else 'shared'} draft")
            options = self._options.with_(own_work=rule, torch_compile=False)
            report = self._evaluator.evaluate(problem, candidate.source, options)
            speedups[rule] = report.speedup or 0.0
        strict_speedup, shared_speedup = speedups[STRICT], speedups[SHARED]
        measured = (
            f"measured: {shared_speedup:.2f} times eager with the library's "
            f"{', '.join(dict.fromkeys(shared.library_calls))}, {strict_speedup:.2f} times with own kernels alone"
        )
        rule = SHARED if shared_speedup > strict_speedup else STRICT
        return OwnWorkChoice(rule=rule, reason=measured)
