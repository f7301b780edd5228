"""Rungs of a verdict, cheapest first: text, trace of the host code, compilation, replay, clock.

A candidate climbs no further than its first failure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from kernelwright.tools.evaluation.empty_extents import with_empty_extents
from kernelwright.tools.evaluation.report_parts import (
    compile_warnings,
    degenerate_answers,
    isolation_warnings,
    with_interpreted,
    with_verdict,
)
from kernelwright.tools.judging.front import Front, TracesAndCompiles, without_failed_configurations
from kernelwright.tools.judging.judge import Judge
from kernelwright.tools.judging.layouts.culprits import name_culprits
from kernelwright.tools.judging.own_work import Rule
from kernelwright.tools.judging.rules import JudgeFindings, Rules
from kernelwright.tools.judging.surroundings.surroundings_checks import (
    traced_in_surroundings,
    with_surroundings,
)
from kernelwright.tools.judging.turns import Turns
from kernelwright.tools.options import Lane, Options
from kernelwright.tools.problem import Problem
from kernelwright.tools.reference_trials.admission import admit
from kernelwright.tools.reference_trials.contract_sizes import (
    is_guarded,
    outside_contract,
    with_fixed_sizes,
)
from kernelwright.tools.references.torch_settings import single_threaded
from kernelwright.tools.report import CorrectnessResult, Environment, Failed, Report, Rung, Tried
from kernelwright.tools.sizing.layout_draws import with_layouts
from kernelwright.tools.sizing.selection import Selection, select_sizes
from kernelwright.tools.source import advice, read_source
from kernelwright.tools.timing.baseline import Baselines
from kernelwright.tools.tracing.client import TracedCandidate

Progress = Callable[[str], None]
INTERPRETED_SIZES = 3
"""Other sizes at which a candidate is interpreted that was right at more of them on a GPU."""
INTERPRETED_SECONDS = 30.0
"""Maximum seconds for the interpreted replays of a candidate that was right on a GPU."""


@dataclass(frozen=True)
class SharedResources:
    """Resources shared by the verdicts of an evaluator."""

    device: str
    """Device of the verdicts: `cpu` or `cuda:N`."""
    environment: Environment
    turns: Turns
    baselines: Baselines
    judge_for: Callable[[Problem], AbstractContextManager[Judge]]
    """Returns a context manager which lends a judge for a verdict."""
    interpreter_for: Callable[[Problem], AbstractContextManager[Judge]]
    """Gives a judge that interprets on a CPU, on every device."""
    front: Callable[[], Front]
    """Returns the front end which traces and compiles in this process."""
    interpreter_front: Callable[[], Front]
    """Returns the front end which traces in this process for an interpreter, on every device."""
    elsewhere: TracesAndCompiles | None
    """Remote front end which traces and compiles candidates. None: this process does."""

    @property
    def on_gpu(self) -> bool:
        """Whether verdicts are made on a GPU."""
        return self.device.startswith("cuda")


@dataclass(frozen=True)
class ContractSizes:
    """The sizes at which a candidate is checked on a CPU, and those that its own guard keeps out."""

    selection: Selection
    candidate: TracedCandidate
    """With its traces at the sizes of `selection`."""
    outside: tuple[Tried, ...] = ()
    """Drawn sizes that lie outside of its contract."""
    fixed: dict[str, int] = field(default_factory=dict)
    """Sizes that its guard fixes, with the problem's own values."""


def with_variants_of_sizes(selection: Selection, problem: Problem, seed: int) -> Selection:
    """Adds other layouts, sizes without elements, and changed surroundings to the sizes of a verdict."""
    chosen = with_empty_extents(with_layouts(selection, seed), problem)
    return with_surroundings(chosen)


class Ladder:
    """Climb of a candidate up the rungs."""

    def __init__(
        self,
        resources: SharedResources,
        problem: Problem,
        source: str,
        options: Options,
        rule: Rule,
        say: Progress,
    ) -> None:
        self._resources, self._say = resources, say
        self._problem, self._source, self._options = problem, source, options
        self._beside_gpu: Selection | None = None
        self._rules = Rules(
            own_work=rule, seconds=options.seconds, contiguous_inputs=options.contiguous_inputs
        )

    def climb(self, report: Report) -> Report:
        """Climbs as far as possible; returns the report with every rung reached.

        Raises ProblemError if the reference itself cannot be used, InfrastructureError for
        trouble of the machine.
        """
        report = report.with_(advice=advice(self._source), environment=self._resources.environment)
        if failure := read_source(self._source, self._options.allow_import):
            return report.with_(failure=failure)
        self._say("running the reference")
        report = report.with_(degenerate=degenerate_answers(self._problem))
        self._problem, reason = admit(self._problem, train_mode=self._options.train_mode)
        report = report.with_(eval_mode=reason)
        with self._resources.judge_for(self._problem) as judge:
            seed = (
                self._options.seed
                if self._options.seed is not None
                else judge.seed_for(self._problem)
            )
            report = self._traced(judge, report, seed)
        if self._resources.on_gpu and report.correct and self._options.interpret is not False:
            report = self._interpreted_beside_gpu(report, seed)
        return self._extras(report) if report.correct and self._options.profile else report

    def _traced(self, judge: Judge, report: Report, seed: int) -> Report:
        resources, options, problem = self._resources, self._options, self._problem
        front: TracesAndCompiles = resources.elsewhere or resources.front()
        lane = self._at(Lane.CPU) if resources.elsewhere is None else nullcontext()
        with lane, nullcontext() if resources.on_gpu else single_threaded():
            self._say("tracing")
            selection = select_sizes(problem, self._source, resources.device, seed, options.sizes)
            if options.sizes and not self._varies_under_interpreter(seed):
                selection = with_variants_of_sizes(selection, problem, seed)
            candidate, compiles, binaries = front.traced_and_compiled(
                problem, self._source, selection, options, seed, self._say
            )
            report = report.with_(output=candidate.output, isolation=candidate.isolation)
        report = report.with_(
            rung=Rung.COMPILE,
            compiles=compiles,
            warnings=(*isolation_warnings(report), *compile_warnings(compiles)),
        )
        if compiles and (failure := compiles[0].failure):
            return report.with_(failure=failure)
        candidate = without_failed_configurations(candidate, binaries)
        if resources.on_gpu:
            return self._on_gpu(judge, report, candidate, selection, seed, binaries)
        return self._interpreted(judge, report, candidate, selection, seed)

    # -------------------------------------------------------------- under the interpreter
    def _within_contract(
        self, candidate: TracedCandidate, selection: Selection, seed: int
    ) -> ContractSizes:
        """Selects other sizes for a candidate whose guard raises at the small sizes, and traces
        it there: dimensions fixed by the guard keep the problem's own values. Returns the
        arguments unchanged if the guard raises nowhere, or accepts no other size.
        """
        unchanged = ContractSizes(selection, candidate)
        if not is_guarded(candidate.failures, selection.base.index):
            return unchanged
        front, options = self._resources.interpreter_front(), self._options
        with self._at(Lane.CPU), single_threaded():
            free = front.free_sizes(self._problem, self._source, selection.base.sizes, options)
            if not free:
                return unchanged
            problem, fixed = with_fixed_sizes(self._problem, free)
            chosen = select_sizes(problem, self._source, "cpu", seed, max(0, len(selection.others)))
            if chosen.too_large or not chosen.base.sizes:
                return unchanged
            if options.sizes:
                chosen = with_variants_of_sizes(chosen, problem, seed)
            self._say("tracing within the sizes that the candidate takes")
            only_trace = options.with_(targets=options.targets[:1])
            again, _, _ = front.traced_and_compiled(
                problem, self._source, chosen, only_trace, seed, self._say
            )
        names = ", ".join(f"{name} {value}" for name, value in fixed.items())
        note = f"own size only of {names}: the candidate raises at others, which are outside of its contract"
        outside = outside_contract(selection.every, candidate.failures)
        return ContractSizes(chosen.with_(notes=(*chosen.notes, note)), again, outside, fixed)

    def _interpreted(
        self,
        judge: Judge,
        report: Report,
        candidate: TracedCandidate,
        selection: Selection,
        seed: int,
    ) -> Report:
        """Replays under the interpreter. Returns the unchanged report if disabled."""
        if self._options.interpret is False:
            return report
        judged = self._judge_interpreted(judge, candidate, selection, seed, self._rules)
        if judged.needs_gpu:
            reason = (
                judged.needs_gpu if selection.too_large else f"needs a GPU ({judged.needs_gpu})"
            )
            return report.with_(
                needs_gpu=judged.needs_gpu,
                warnings=(*report.warnings, f"not interpreted: {reason}"),
            )
        return with_verdict(
            report, self._problem, judged, Rung.INTERPRETED, interpreted=judged.result
        )

    def _judge_interpreted(
        self,
        judge: Judge,
        candidate: TracedCandidate,
        selection: Selection,
        seed: int,
        rules: Rules,
    ) -> JudgeFindings:
        """Judges the candidate under the interpreter, at sizes which its own guard accepts."""
        if selection.too_large:
            return JudgeFindings(
                CorrectnessResult(device="cpu", interpreted=True), needs_gpu=selection.too_large
            )
        checked = self._within_contract(candidate, selection, seed)
        selection, candidate = checked.selection, checked.candidate
        self._say("interpreting at small sizes")
        with self._at(Lane.CPU):
            others = (*selection.variants, *traced_in_surroundings(selection, candidate))
            judged = judge.judge(candidate, selection.base, others, seed, rules, progress=self._say)
            judged = self._with_culprits(judge, judged, selection, seed, interpreted=True)
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
            sizes=selection.base.sizes, notes=(*judged.result.notes, *selection.notes),
            tried=(*judged.result.tried, *checked.outside), fixed_sizes=checked.fixed,
            host_choices=(*judged.result.host_choices, *candidate.host_choices),
        )  # fmt: skip
        return judged.with_result(result)

    def _varies_under_interpreter(self, seed: int) -> bool:
        """Returns whether other layouts and surroundings are judged under the interpreter, after the GPU's sizes.

        Each of them asks for binaries of its own on a GPU: a product with nine layouts compiles 13 instead of 6. Where
        every layout must be right, the GPU judges them: a kernel may be one that no interpreter can run.
        """
        if not self._resources.on_gpu or self._options.interpret is False:
            return False
        if not self._options.contiguous_inputs:
            return False
        return not self._selection_beside_gpu(seed).too_large

    def _selection_beside_gpu(self, seed: int) -> Selection:
        """Returns the few small sizes at which a candidate of a GPU is interpreted as well."""
        if self._beside_gpu is None:
            number = min(self._options.sizes, INTERPRETED_SIZES)
            with single_threaded():
                chosen = select_sizes(self._problem, self._source, "cpu", seed, number)
            if self._options.sizes and not chosen.too_large:
                chosen = with_variants_of_sizes(chosen, self._problem, seed)
            self._beside_gpu = chosen
        return self._beside_gpu

    def _interpreted_beside_gpu(self, report: Report, seed: int) -> Report:
        """Adds results of the interpreter for a candidate which is right on the GPU: outcomes of
        comparisons which no draw produced, other orders of programs and reductions, other layouts of
        the inputs and other surroundings. Few small sizes are enough.
        """
        front, options = self._resources.interpreter_front(), self._options.with_(targets=())
        with self._at(Lane.CPU), single_threaded():
            selection = self._selection_beside_gpu(seed)
            candidate, _, _ = front.traced_and_compiled(
                self._problem, self._source, selection, options, seed, self._say
            )
        rules = replace(self._rules, seconds=min(self._rules.seconds, INTERPRETED_SECONDS))
        with self._resources.interpreter_for(self._problem) as judge:
            judged = self._judge_interpreted(judge, candidate, selection, seed, rules)
        return with_interpreted(report, judged, is_too_large=bool(selection.too_large))

    # -------------------------------------------------------------- on a GPU
    def _on_gpu(
        self, judge: Judge, report: Report, candidate: TracedCandidate, selection: Selection, seed: int,
        binaries: Mapping[str, Any],
    ) -> Report:  # fmt: skip
        take_whole = partial(self._resources.turns.take_whole_for, self._problem)
        with self._at(Lane.GPU, shared=True):  # the other sizes are small
            self._say("judging on the GPU")
            others = (*selection.variants, *traced_in_surroundings(selection, candidate))
            judged = judge.judge(
                candidate, selection.base, others, seed, self._rules, binaries=binaries,
                progress=self._say, take_whole=take_whole,
            )  # fmt: skip
            judged = self._with_culprits(judge, judged, selection, seed, interpreted=False)
            choices = (*judged.result.host_choices, *candidate.host_choices)
            judged = judged.with_result(judged.result.with_(host_choices=choices))
            report = with_verdict(
                report, self._problem, judged, Rung.CORRECTNESS, correctness=judged.result
            )
            if report.correct and self._options.profile:
                report = self._profiled(judge, report, candidate, selection, seed, binaries)
        return report

    def _with_culprits(
        self,
        judge: Judge,
        judged: JudgeFindings,
        selection: Selection,
        seed: int,
        *,
        interpreted: bool,
    ) -> JudgeFindings:
        """Returns the findings with the inputs whose strides a candidate ignores, which is traced once more for it."""

        def trace(variants: Selection) -> tuple[TracedCandidate, Mapping[str, Any] | None]:
            front: TracesAndCompiles = self._resources.elsewhere or self._resources.front()
            options = self._options.with_(targets=self._options.targets[:1])
            if interpreted and self._resources.on_gpu:
                front, options = self._resources.interpreter_front(), options.with_(targets=())
            candidate, _, binaries = front.traced_and_compiled(
                self._problem, self._source, variants, options, seed, self._say
            )
            candidate = without_failed_configurations(candidate, binaries)
            return candidate, None if interpreted else binaries

        return name_culprits(judge, judged, selection, trace, seed, self._rules)

    def _profiled(
        self, judge: Judge, report: Report, candidate: TracedCandidate, selection: Selection, seed: int,
        binaries: Mapping[str, Any],
    ) -> Report:  # fmt: skip
        """The clock's answer; an answer that is wrong while it is timed is a failure."""
        self._say("timing")
        rule, kernels = self._rules.own_work, report.compiles[0].kernels if report.compiles else ()
        try:
            profile, work = judge.profile(
                candidate,
                selection.base,
                seed,
                rule,
                report.own_work,
                binaries,
                kernels,
                self._resources.turns.alone,
            )
        except Failed as failed:
            return report.with_(rung=Rung.PROFILE, failure=failed.failure, correct=False)
        return report.with_(rung=Rung.PROFILE, profile=profile, own_work=work)

    def _extras(self, report: Report) -> Report:
        """torch.compile's time, counters and the sanitizer: bounded, never fatal."""
        from kernelwright.tools.timing.extras import add_extras

        options, resources = self._options, self._resources
        if report.profile is None or not (
            options.torch_compile or options.ncu or options.sanitizer
        ):
            return report
        if options.torch_compile:
            with self._at(Lane.CPU):
                resources.baselines.get_ready(
                    self._problem, report.environment, report.profile.method
                )
        with self._at(Lane.GPU):
            timed = partial(resources.baselines.timed, self._problem, report.environment)
            return add_extras(
                report, self._problem, self._source, options, resources.device, timed, self._say
            )

    def _at(self, lane: Lane, *, shared: bool = False) -> AbstractContextManager[None]:
        return self._resources.turns.at(lane, self._options.lease_seconds, self._say, shared=shared)
