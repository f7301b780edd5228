"""Traces a candidate's host code at every size, and compiles its kernels, before any data exists."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol

from kernelwright.tools.compiling.compiled import Compiled
from kernelwright.tools.compiling.compiler import Compiler
from kernelwright.tools.compiling.specialisations import guess_for_other_sizes, share_binaries
from kernelwright.tools.judging import own_work
from kernelwright.tools.judging.compile_report import compile_result, kernels_of
from kernelwright.tools.judging.rules import JudgeFindings, Rules
from kernelwright.tools.options import TRACE_TARGET, Options
from kernelwright.tools.problem import Problem
from kernelwright.tools.reference_trials.contract_sizes import groups_of_sizes
from kernelwright.tools.references.input_spec import input_spec
from kernelwright.tools.report import CompileResult, Failure, Fault
from kernelwright.tools.sandbox import Zygote
from kernelwright.tools.sizing.at_size import AtSize
from kernelwright.tools.sizing.selection import Selection, sizes_reaching_numbers, trace_requests
from kernelwright.tools.trace.trace import Choice, Launch, Step, Traced
from kernelwright.tools.tracing.client import SizeRequest, TracedCandidate, trace_candidate

if TYPE_CHECKING:
    from kernelwright.tools.judging.judge import Judge

UNCHECKED = (
    "at the problem's own size it launches a kernel that no size launches which could be checked here: "
    "judge it on a GPU"
)


MANY_CORES = (os.cpu_count() or 1) >= 8
"""Cores are available for speculative compilation."""
MAX_GUESSED_KERNELS = 4
"""Maximum number of kernels compiled before other sizes are known to launch them."""


class TracesAndCompiles(Protocol):
    """Front end: traces and compiles candidates, in this process (`Front`) or in another."""

    def traced_and_compiled(
        self,
        problem: Problem,
        source: str,
        selection: Selection,
        options: Options,
        seed: int,
        say: Callable[[str], None],
    ) -> tuple[TracedCandidate, tuple[CompileResult, ...], dict[str, Any]]:
        """Traces and compiles a candidate, as `Front.traced_and_compiled`. An error raised by `say`
        ends the work."""
        ...


class Front:
    """Traces and compiles candidates for a device; shared by all threads."""

    def __init__(self, zygote: Zygote, compiler: Compiler, device: str, own_target: str) -> None:
        """zygote: of kind COMPILE. own_target: that of the judging GPU, or of the pretended GPU."""
        self._zygote = zygote
        self._compiler = compiler
        self._device = device
        self._own_target = own_target

    @property
    def zygote(self) -> Zygote:
        """The warm process of kind COMPILE from which candidates' processes are forked."""
        return self._zygote

    @property
    def _on_gpu(self) -> bool:
        return self._device != "cpu"

    def traced_and_compiled(
        self,
        problem: Problem,
        source: str,
        selection: Selection,
        options: Options,
        seed: int,
        say: Callable[[str], None],
    ) -> tuple[TracedCandidate, tuple[CompileResult, ...], dict[str, Any]]:
        """Returns traces, the problem's own size first; a result per target; and the main target's
        binaries.

        Binaries are those of the problem's own size; on a GPU those of all sizes. The own size's
        kernels are compiled while other sizes are traced. If they fail, only that size is traced.
        """
        targets = options.targets or ((self._own_target,) if self._on_gpu else ())
        early: list[CompileResult] = []

        def fails(first: TracedCandidate) -> bool:
            if not targets:
                return False
            if self._on_gpu and MANY_CORES:
                beside.submit(self._compile_guess, first, targets[0], source, options)
            early.append(
                self._compile_traces(targets[0], first, range(1), source, options, sizes)[0]
            )
            return early[0].failure is not None

        main = options.targets[0] if options.targets else self._own_target
        sizes = trace_requests(problem, selection, self._device, seed)
        with ThreadPoolExecutor(2, thread_name_prefix="compile") as beside:

            def compile_others(traced_candidate: TracedCandidate) -> None:
                if targets and self._on_gpu:
                    beside.submit(
                        self._compile_others, traced_candidate, targets[0], source, options
                    )

            candidate = self._trace(source, main, sizes, options, fails, compile_others)
        if self._on_gpu:
            candidate = _sharing(candidate)
        if not targets:
            return candidate, (), {}
        say(f"compiling for {', '.join(targets)}")
        if early and early[0].failure is not None:
            first, binaries = early[0].with_(seconds=candidate.seconds), dict[str, Any]()
        else:
            count = len(candidate.traced.traces)
            indices = range(count if self._on_gpu else min(1, count))
            first, binaries = self._compile_traces(
                targets[0], candidate, indices, source, options, sizes
            )
        other_results = [
            self._elsewhere(problem, source, target, options) for target in targets[1:]
        ]
        return candidate, (first, *other_results), binaries

    def _compile_others(
        self, candidate: TracedCandidate, target: str, source: str, options: Options
    ) -> None:
        """Compiles kernels of other sizes into the compiler's cache, in parallel to those of the
        own size.

        An error occurs again, and is reported, when all kernels are compiled.
        """
        traced = _sharing(candidate).traced
        own_size_keys = set(_own_kernels(traced))
        other_keys = [
            k for k in kernels_of(traced, range(len(traced.traces))) if k not in own_size_keys
        ]
        if other_keys:
            self._compiler.compile(
                traced, other_keys, target, source=source, seconds=options.compile_seconds
            )

    def _compile_guess(
        self, first: TracedCandidate, target: str, source: str, options: Options
    ) -> None:
        """Compiles kernels that other sizes will probably launch, while these are traced. A wrong
        guess costs only a core's time."""
        traced = guess_for_other_sizes(first.traced, _own_kernels(first.traced))
        if 0 < len(traced.kernels) <= MAX_GUESSED_KERNELS:
            self._compiler.compile(
                traced, list(traced.kernels), target, source=source, seconds=options.compile_seconds
            )

    def traced_at_own_size(
        self, problem: Problem, source: str, target: str, options: Options
    ) -> TracedCandidate:
        """Traces a candidate at the problem's own size, with index 0. Never raises for behaviour of
        the candidate."""
        return self._trace(source, target, _own_size(problem), options)

    def free_sizes(
        self, problem: Problem, source: str, small: Mapping[str, int], options: Options
    ) -> list[dict[str, int]]:
        """Returns groups of sizes that a candidate accepts at small values, all others being the
        problem's own."""
        groups = groups_of_sizes(problem, small)
        requests = [SizeRequest(spec=input_spec(problem))]
        requests += [
            SizeRequest(spec=input_spec(problem.with_sizes(group), as_it_is=True))
            for group in groups
        ]
        target = options.targets[0] if options.targets else TRACE_TARGET
        failures = self._trace(source, target, requests, options).failures
        return [
            group for group, failure in zip(groups, failures[1:], strict=False) if failure is None
        ]

    def compiled_at_own_size(
        self,
        candidate: TracedCandidate,
        target: str,
        source: str,
        options: Options,
        *,
        texts: Collection[str] = (),
    ) -> dict[str, Compiled]:
        """Compiles the kernels of the problem's own size; returns them by key.

        texts: stages whose text is returned (`ptx`, `amdgcn`).
        """
        kernels = _own_kernels(candidate.traced)
        return self._compiler.compile(
            candidate.traced,
            kernels,
            target,
            source=source,
            seconds=options.compile_seconds,
            texts=texts,
        )

    def _elsewhere(
        self, problem: Problem, source: str, target: str, options: Options
    ) -> CompileResult:
        """Returns the result for an additional target."""
        candidate = self.traced_at_own_size(problem, source, target, options)
        return self._compile_traces(
            target, candidate, range(1), source, options, _own_size(problem)
        )[0]

    def _trace(
        self,
        source: str,
        target: str,
        sizes: list[SizeRequest],
        options: Options,
        decided: Callable[[TracedCandidate], bool] = lambda _: False,
        complete: Callable[[TracedCandidate], None] = lambda _: None,
    ) -> TracedCandidate:
        return trace_candidate(
            self._zygote,
            source,
            target,
            sizes,
            seconds=options.compile_seconds,
            allow_import=options.allow_import,
            decided=decided,
            complete=complete,
        )

    def _compile_traces(
        self,
        target: str,
        candidate: TracedCandidate,
        indices: Sequence[int],
        source: str,
        options: Options,
        sizes: Sequence[SizeRequest],
    ) -> tuple[CompileResult, dict[str, Any]]:
        """Compiles kernels of these traces. sizes: those traced; the problem's own is the first."""
        begun = time.monotonic()
        kernels = kernels_of(candidate.traced, indices) if candidate.traced.traces else []
        compiled: dict[str, Any] = {}
        if kernels:
            compiled = self._compiler.compile(
                candidate.traced, kernels, target, source=source, seconds=options.compile_seconds
            )
        seconds = time.monotonic() - begun + candidate.seconds
        return compile_result(target, candidate, compiled, seconds, sizes[0].spec.outputs), compiled

    # -------------------------------------------------------------- kernels that only the problem's own size launches
    def all_kernels_checked(
        self,
        judge: Judge,
        judged: JudgeFindings,
        problem: Problem,
        source: str,
        candidate: TracedCandidate,
        selection: Selection,
        seed: int,
        options: Options,
        rules: Rules,
    ) -> JudgeFindings:
        """Searches sizes for kernels that only the problem's own size launches, and judges them
        there.

        If no interpretable size launches such a kernel, the result is UNCHECKED.
        """
        if judged.result.failure is not None or judged.needs_gpu:
            return judged
        missing = _launched(candidate.traced, 0).difference(
            *(_launched(candidate.traced, size.index) for size in selection.every if not size.spare)
        )
        if not missing:
            return judged
        tried = sizes_reaching_numbers(problem, source, selection, self._device)
        sizes = [
            SizeRequest(spec=input_spec(problem)),
            *(SizeRequest(spec=input_spec(s.problem, as_it_is=True)) for s in tried),
        ]
        more = self._trace(
            source, options.targets[0] if options.targets else TRACE_TARGET, sizes, options
        )
        result = judged.result
        for size in tried:
            if missing & _launched(more.traced, size.index):
                size_result = judge.judge(more, size, (), seed, rules).result
                result = result.with_(
                    tried=(*result.tried, *size_result.tried), failure=size_result.failure
                )
                missing -= _launched(more.traced, size.index)
                if size_result.failure is not None or not missing:
                    return judged.with_result(result)
        return judged.with_result(
            result.with_(failure=Failure(fault=Fault.UNCHECKED, message=UNCHECKED))
        )


def _own_size(problem: Problem) -> list[SizeRequest]:
    """Returns the request for the problem's own size alone."""
    return trace_requests(problem, Selection(base=AtSize(index=0, problem=problem)), "cuda:0", 0)


def _own_kernels(traced: Traced) -> list[str]:
    """Returns keys of kernels launched at the problem's own size."""
    return kernels_of(traced, range(1)) if traced.traces else []


def _sharing(candidate: TracedCandidate) -> TracedCandidate:
    """Shares binaries between kernels of other sizes that differ only in their arguments'
    divisibility."""
    shared: TracedCandidate = candidate.with_(
        traced=share_binaries(candidate.traced, _own_kernels(candidate.traced))
    )
    return shared


def without_failed_configurations(
    candidate: TracedCandidate, compiled: Mapping[str, Any]
) -> TracedCandidate:
    """Removes autotuned configurations that do not compile, as Triton does."""
    broken = {key for key, kernel in compiled.items() if kernel.failure is not None}
    if not broken:
        return candidate

    def cut(steps: Sequence[Step] | None) -> tuple[Step, ...] | None:
        return (
            None
            if steps is None
            else tuple(_cut(s, broken) if isinstance(s, Choice) else s for s in steps)
        )

    traces = tuple(
        t and t.with_(setup=cut(t.setup), first=cut(t.first), later=cut(t.later))
        for t in candidate.traced.traces
    )
    reduced: TracedCandidate = candidate.with_(traced=candidate.traced.with_(traces=traces))
    return reduced


def _cut(choice: Choice, broken: set[str]) -> Choice:
    """Removes broken alternatives of a choice; returns the choice unchanged if none would remain."""
    fine = [
        i
        for i, a in enumerate(choice.alternatives)
        if not any(isinstance(s, Launch) and s.kernel in broken for s in a)
    ]
    if not fine or len(fine) == len(choice.alternatives):
        return choice
    labels = tuple(choice.labels[i] for i in fine if i < len(choice.labels))
    cut: Choice = choice.with_(
        alternatives=tuple(choice.alternatives[i] for i in fine), labels=labels
    )
    return cut


def _launched(traced: Traced, index: int) -> frozenset[str]:
    trace = traced.traces[index] if index < len(traced.traces) else None
    return own_work.kernels_launched(trace, traced) if trace is not None else frozenset()
