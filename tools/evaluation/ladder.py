"""Rungs of a verdict, cheapest first: text, trace of the host code, compilation, replay, clock.

A candidate climbs no further than its first failure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from kernelwright.tools.evaluation.background_step import BackgroundStep
from kernelwright.tools.evaluation.interpreted_rung import (
    InterpretedRung,
    select_sizes_beside_gpu,
    with_variants_of_sizes,
)
from kernelwright.tools.evaluation.report_parts import (
    compile_warnings,
    degenerate_answers,
    isolation_warnings,
    why_unseen,
    with_interpreted,
    with_verdict,
)
from kernelwright.tools.evaluation.shared_resources import Progress, SharedResources
from kernelwright.tools.judging.front import (
    MANY_CORES,
    TracesAndCompiles,
    without_failed_configurations,
)
from kernelwright.tools.judging.judge import Judge
from kernelwright.tools.judging.layouts.culprits import name_culprits
from kernelwright.tools.judging.own_work import Rule
from kernelwright.tools.judging.rules import ChecksOf, JudgeFindings, Rules
from kernelwright.tools.judging.surroundings.surroundings_checks import traced_in_surroundings
from kernelwright.tools.options import Lane, Options
from kernelwright.tools.problem import Problem
from kernelwright.tools.reference_trials.admission import admit
from kernelwright.tools.references.torch_settings import single_threaded
from kernelwright.tools.report import Failed, Report, Rung
from kernelwright.tools.sizing.selection import Selection, select_sizes
from kernelwright.tools.source import advice, read_source
from kernelwright.tools.tracing.client import TracedCandidate


def _do_nothing() -> None: ...


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
        self._resources = resources
        self._say = say
        self._problem = problem
        self._source = source
        self._options = options
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
            if self._resources.on_gpu and self._options.interpret is not False:
                report = self._on_gpu_and_interpreted(judge, report, seed)
            else:
                report = self._traced(judge, report, seed, variants=True)
        return self._extras(report) if report.correct and self._options.profile else report

    def _on_gpu_and_interpreted(self, judge: Judge, report: Report, seed: int) -> Report:
        """Judges on a GPU, and under the interpreter beside it.

        Other layouts, surroundings and structures of matrices need many calls, and layouts also
        need separate binaries on a GPU (a product with nine of them compiles 13 instead of 6), but
        their answers depend on no processor: the interpreter judges them. A candidate that no
        interpreter can run is judged again, with all checks on the GPU.
        """
        selection = select_sizes_beside_gpu(self._problem, self._source, self._options, seed)
        is_divided = self._options.contiguous_inputs and not selection.too_large
        undivided = report
        rules = self._rules
        if is_divided:
            self._rules = replace(rules, checks=ChecksOf.GPU_BESIDE_INTERPRETER)

        def interpret(say: Progress) -> JudgeFindings:
            rung = InterpretedRung(
                self._resources, self._problem, self._source, self._options, rules, say
            )
            return rung.judged_beside_gpu(selection, seed)

        with BackgroundStep(interpret) as interpreted:
            has_cores = MANY_CORES and self._resources.elsewhere is None
            report = self._traced(
                judge, report, seed, variants=not is_divided,
                compiled=interpreted.start if has_cores else _do_nothing,
            )  # fmt: skip
            if not report.correct:
                return report
            judged = interpreted.result(self._say)
        if is_divided and why_unseen(judged):
            self._say("judging on the GPU what no interpreter can run")
            self._rules = rules
            report = self._traced(judge, undivided, seed, variants=True)
            if not report.correct:
                return report
        return with_interpreted(report, judged, is_too_large=bool(selection.too_large))

    def _traced(
        self,
        judge: Judge,
        report: Report,
        seed: int,
        *,
        variants: bool,
        compiled: Callable[[], None] = _do_nothing,
    ) -> Report:
        """Traces, compiles and judges the candidate on this device; returns the report with these
        rungs.

        variants: also judges other layouts, empty sizes and other surroundings. compiled: called
        once the kernels are compiled, before they are judged.
        """
        resources = self._resources
        options = self._options
        problem = self._problem
        front: TracesAndCompiles = resources.elsewhere or resources.front()
        lane = self._at(Lane.CPU) if resources.elsewhere is None else nullcontext()
        with lane, nullcontext() if resources.on_gpu else single_threaded():
            self._say("tracing")
            selection = select_sizes(problem, self._source, resources.device, seed, options.sizes)
            if options.sizes and variants:
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
        compiled()
        candidate = without_failed_configurations(candidate, binaries)
        if resources.on_gpu:
            return self._on_gpu(judge, report, candidate, selection, seed, binaries)
        return self._interpreted(judge, report, candidate, selection, seed)

    # -------------------------------------------------------------- under the interpreter
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
        rung = InterpretedRung(
            self._resources, self._problem, self._source, self._options, self._rules, self._say
        )
        judged = rung.judged(judge, candidate, selection, seed)
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
            judged = self._with_culprits(judge, judged, selection, seed)
            choices = (*judged.result.host_choices, *candidate.host_choices)
            judged = judged.with_result(judged.result.with_(host_choices=choices))
            report = with_verdict(
                report, self._problem, judged, Rung.CORRECTNESS, correctness=judged.result
            )
            if report.correct and self._options.profile:
                report = self._profiled(judge, report, candidate, selection, seed, binaries)
        return report

    def _with_culprits(
        self, judge: Judge, judged: JudgeFindings, selection: Selection, seed: int
    ) -> JudgeFindings:
        """Adds the inputs whose strides the candidate ignores; traces the candidate again for this."""

        def trace(variants: Selection) -> tuple[TracedCandidate, Mapping[str, Any] | None]:
            front: TracesAndCompiles = self._resources.elsewhere or self._resources.front()
            options = self._options.with_(targets=self._options.targets[:1])
            candidate, _, binaries = front.traced_and_compiled(
                self._problem, self._source, variants, options, seed, self._say
            )
            return without_failed_configurations(candidate, binaries), binaries

        return name_culprits(judge, judged, selection, trace, seed, self._rules)

    def _profiled(
        self, judge: Judge, report: Report, candidate: TracedCandidate, selection: Selection, seed: int,
        binaries: Mapping[str, Any],
    ) -> Report:  # fmt: skip
        """Adds the profile; a wrong answer during timing is a failure."""
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
        """Adds torch.compile's time, counters and the sanitizer: bounded, never fatal."""
        from kernelwright.tools.timing.extras import Extras

        options = self._options
        resources = self._resources
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
            extras = Extras(
                self._problem, self._source, options, resources.device, timed, self._say
            )
            return extras.add_to(report)

    def _at(self, lane: Lane, *, shared: bool = False) -> AbstractContextManager[None]:
        return self._resources.turns.at(lane, self._options.lease_seconds, self._say, shared=shared)
