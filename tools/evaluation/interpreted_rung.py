"""Judges a candidate under the interpreter: the whole verdict without a GPU, the device-independent
part beside a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

from kernelwright.tools.evaluation.empty_extents import with_empty_extents
from kernelwright.tools.evaluation.shared_resources import Progress, SharedResources
from kernelwright.tools.judging.front import TracesAndCompiles, without_failed_configurations
from kernelwright.tools.judging.judge import Judge
from kernelwright.tools.judging.layouts.culprits import name_culprits
from kernelwright.tools.judging.rules import ChecksOf, JudgeFindings, Rules
from kernelwright.tools.judging.surroundings.surroundings_checks import (
    traced_in_surroundings,
    with_surroundings,
)
from kernelwright.tools.options import Lane, Options
from kernelwright.tools.problem import Problem
from kernelwright.tools.reference_trials.contract_sizes import (
    is_guarded,
    outside_contract,
    with_fixed_sizes,
)
from kernelwright.tools.references.torch_settings import single_threaded
from kernelwright.tools.report import CorrectnessResult, Tried
from kernelwright.tools.sizing.layout_draws import with_layouts
from kernelwright.tools.sizing.selection import Selection, select_sizes
from kernelwright.tools.tracing.client import TracedCandidate

SIZES_BESIDE_GPU = 2
"""Number of other sizes at which a candidate that passed on a GPU is interpreted."""
SECONDS_BESIDE_GPU = 30.0
"""Maximum seconds for the interpreted replays of a candidate that was right on a GPU."""


@dataclass(frozen=True)
class ContractSizes:
    """The sizes at which a candidate is checked on a CPU, and those excluded by its own guard."""

    selection: Selection
    candidate: TracedCandidate
    """The candidate with its traces at the sizes of `selection`."""
    outside: tuple[Tried, ...] = ()
    """Drawn sizes that lie outside of its contract."""
    fixed: dict[str, int] = field(default_factory=dict)
    """Sizes that its guard fixes, with the problem's own values."""


def with_variants_of_sizes(selection: Selection, problem: Problem, seed: int) -> Selection:
    """Adds other layouts, sizes without elements, and changed surroundings to the sizes of a verdict."""
    chosen = with_empty_extents(with_layouts(selection, seed), problem)
    return with_surroundings(chosen)


def select_sizes_beside_gpu(
    problem: Problem, source: str, options: Options, seed: int
) -> Selection:
    """Returns the few small sizes at which a candidate of a GPU is interpreted."""
    with single_threaded():
        chosen = select_sizes(problem, source, "cpu", seed, min(options.sizes, SIZES_BESIDE_GPU))
    if options.sizes and not chosen.too_large:
        chosen = with_variants_of_sizes(chosen, problem, seed)
    return chosen


class InterpretedRung:
    """The interpreted replays of a candidate."""

    def __init__(
        self,
        resources: SharedResources,
        problem: Problem,
        source: str,
        options: Options,
        rules: Rules,
        say: Progress,
    ) -> None:
        """problem: as admitted, at its own sizes."""
        self._resources = resources
        self._say = say
        self._problem = problem
        self._source = source
        self._options = options
        self._rules = rules

    def judged_beside_gpu(self, selection: Selection, seed: int) -> JudgeFindings:
        """Judges the device-independent part: untested outcomes of comparisons, program and
        reduction orders, matrix structures, input layouts, surroundings.

        selection: that of `select_sizes_beside_gpu`. Raises ProblemError and InfrastructureError.
        """
        if selection.too_large:
            return _not_run(selection)
        front = self._resources.interpreter_front()
        options = self._options.with_(targets=())
        with self._at(Lane.CPU), single_threaded():
            candidate, _, _ = front.traced_and_compiled(
                self._problem, self._source, selection, options, seed, self._say
            )
        self._rules = replace(
            self._rules,
            seconds=min(self._rules.seconds, SECONDS_BESIDE_GPU),
            checks=ChecksOf.INTERPRETER_BESIDE_GPU,
        )
        with self._resources.interpreter_for(self._problem) as judge:
            return self.judged(judge, candidate, selection, seed)

    def judged(
        self, judge: Judge, candidate: TracedCandidate, selection: Selection, seed: int
    ) -> JudgeFindings:
        """Judges a traced candidate at sizes which its own guard accepts. Raises ProblemError."""
        if selection.too_large:
            return _not_run(selection)
        checked = self._within_contract(candidate, selection, seed)
        selection = checked.selection
        candidate = checked.candidate
        rules = self._rules
        self._say("interpreting at small sizes")
        with self._at(Lane.CPU):
            others = (*selection.variants, *traced_in_surroundings(selection, candidate))
            judged = judge.judge(candidate, selection.base, others, seed, rules, progress=self._say)
            judged = self._with_culprits(judge, judged, selection, seed)
            judged = self._resources.interpreter_front().all_kernels_checked(
                judge,
                judged,
                self._problem,
                self._source,
                candidate,
                selection,
                seed,
                self._options,
                rules,
            )
        result = judged.result.with_(
            sizes=selection.base.sizes,
            notes=(*judged.result.notes, *selection.notes),
            tried=(*judged.result.tried, *checked.outside),
            fixed_sizes=checked.fixed,
            host_choices=(*judged.result.host_choices, *candidate.host_choices),
        )
        return judged.with_result(result)

    def _within_contract(
        self, candidate: TracedCandidate, selection: Selection, seed: int
    ) -> ContractSizes:
        """Selects other sizes for a candidate whose guard raises at the base size, or at more of
        the drawn sizes than `Rules.may_refuse`, and traces it there: dimensions fixed by the guard
        keep the problem's own values. Returns the arguments unchanged for any other guard, and for
        one that accepts no other size.

        Example: a problem of the size (2, 64, 16) is interpreted as it is. Sizes drawn for it
        change all three extents; a kernel for 64 alone is checked at sizes (5, 64, 24) instead.
        """
        unchanged = ContractSizes(selection, candidate)
        guarded = [size for size in selection.others if is_guarded(candidate.failures, size.index)]
        few_are_guarded = len(guarded) <= self._rules.may_refuse * len(selection.others)
        if few_are_guarded and not is_guarded(candidate.failures, selection.base.index):
            return unchanged
        front = self._resources.interpreter_front()
        options = self._options
        with self._at(Lane.CPU), single_threaded():
            free = front.free_sizes(self._problem, self._source, selection.base.sizes, options)
            if not free:
                return unchanged
            problem, fixed = with_fixed_sizes(self._problem, free)
            chosen = select_sizes(problem, self._source, "cpu", seed, max(0, len(selection.others)))
            if chosen.too_large:
                return unchanged
            if options.sizes:
                chosen = with_variants_of_sizes(chosen, problem, seed)
            self._say("tracing within the sizes that the candidate takes")
            only_trace = options.with_(targets=options.targets[:1])
            retraced, _, _ = front.traced_and_compiled(
                problem, self._source, chosen, only_trace, seed, self._say
            )
        names = ", ".join(f"{name} {value}" for name, value in fixed.items())
        note = f"own size only of {names}: the candidate raises at others, which are outside of its contract"
        outside = outside_contract(selection.every, candidate.failures)
        return ContractSizes(chosen.with_(notes=(*chosen.notes, note)), retraced, outside, fixed)

    def _with_culprits(
        self, judge: Judge, judged: JudgeFindings, selection: Selection, seed: int
    ) -> JudgeFindings:
        """Adds the inputs whose strides the candidate ignores; traces the candidate again for this."""

        def trace(variants: Selection) -> tuple[TracedCandidate, Mapping[str, Any] | None]:
            resources = self._resources
            options = self._options
            front: TracesAndCompiles = resources.elsewhere or resources.front()
            options = options.with_(targets=options.targets[:1])
            if resources.on_gpu:
                front = resources.interpreter_front()
                options = options.with_(targets=())
            candidate, _, binaries = front.traced_and_compiled(
                self._problem, self._source, variants, options, seed, self._say
            )
            return without_failed_configurations(candidate, binaries), None

        return name_culprits(judge, judged, selection, trace, seed, self._rules)

    def _at(self, lane: Lane) -> AbstractContextManager[None]:
        return self._resources.turns.at(lane, self._options.lease_seconds, self._say)


def _not_run(selection: Selection) -> JudgeFindings:
    result = CorrectnessResult(device="cpu", interpreted=True)
    return JudgeFindings(result, needs_gpu=selection.too_large)
