"""What comes before any data: a candidate's host code traced at every size, and its kernels compiled."""

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
"""Whether there are cores to spare for what is likely to be asked for."""
MAX_GUESSED_KERNELS = 4
"""Kernels of one candidate that are compiled before it is known whether other sizes launch them."""


class TracesAndCompiles(Protocol):
    """What makes traces and binaries of a candidate: a `Front`, or one in another process."""

    def traced_and_compiled(
        self,
        problem: Problem,
        source: str,
        selection: Selection,
        asked: Options,
        seed: int,
        say: Callable[[str], None],
    ) -> tuple[TracedCandidate, tuple[CompileResult, ...], dict[str, Any]]:
        """See `Front.traced_and_compiled`. What `say` raises ends it."""
        ...


class Front:
    """Traces and compiles candidates for one device; shared by all threads."""

    def __init__(self, zygote: Zygote, compiler: Compiler, device: str, own_target: str) -> None:
        """zygote: of kind COMPILE.

        own_target: of the GPU that verdicts are made on, or what a GPU is pretended to be.
        """
        self._zygote, self._compiler, self._device, self._own_target = (
            zygote,
            compiler,
            device,
            own_target,
        )

    @property
    def zygote(self) -> Zygote:
        """The warm process that candidates' own processes are forked from, of kind COMPILE."""
        return self._zygote

    @property
    def _on_gpu(self) -> bool:
        return self._device != "cpu"

    def traced_and_compiled(
        self,
        problem: Problem,
        source: str,
        selection: Selection,
        asked: Options,
        seed: int,
        say: Callable[[str], None],
    ) -> tuple[TracedCandidate, tuple[CompileResult, ...], dict[str, Any]]:
        """The candidate's traces, the problem's own size first; a result a target; and the main target's binaries:
        those of the problem's own size, on a GPU of all sizes.

        The kernels of the problem's own size are compiled while the other sizes are traced. Where they fail, there is a
        trace of that size alone.
        """
        targets = asked.targets or ((self._own_target,) if self._on_gpu else ())
        early: list[CompileResult] = []

        def fails(first: TracedCandidate) -> bool:
            if not targets:
                return False
            if self._on_gpu and MANY_CORES:
                beside.submit(self._compile_guess, first, targets[0], source, asked)
            early.append(self._for(targets[0], first, range(1), source, asked, sizes)[0])
            return early[0].failure is not None

        main = asked.targets[0] if asked.targets else self._own_target
        sizes = trace_requests(problem, selection, self._device, seed)
        with ThreadPoolExecutor(2, thread_name_prefix="compile") as beside:

            def compile_others(found: TracedCandidate) -> None:
                if targets and self._on_gpu:
                    beside.submit(self._compile_others, found, targets[0], source, asked)

            candidate = self._trace(source, main, sizes, asked, fails, compile_others)
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
            first, binaries = self._for(targets[0], candidate, indices, source, asked, sizes)
        others = [self._elsewhere(problem, source, target, asked) for target in targets[1:]]
        return candidate, (first, *others), binaries

    def _compile_others(
        self, found: TracedCandidate, target: str, source: str, asked: Options
    ) -> None:
        """What the problem's own size does not launch, while that is compiled: afterwards the compiler's cache has it.

        What goes wrong here is met again, and told, when all kernels are asked for.
        """
        traced = _sharing(found).traced
        own = set(_own_kernels(traced))
        others = [k for k in kernels_of(traced, range(len(traced.traces))) if k not in own]
        if others:
            self._compiler.compile(
                traced, others, target, source=source, seconds=asked.compile_seconds
            )

    def _compile_guess(
        self, first: TracedCandidate, target: str, source: str, asked: Options
    ) -> None:
        """What the other sizes will probably ask for, while they are being traced. A wrong guess costs a core."""
        traced = guess_for_other_sizes(first.traced, _own_kernels(first.traced))
        if 0 < len(traced.kernels) <= MAX_GUESSED_KERNELS:
            self._compiler.compile(
                traced, list(traced.kernels), target, source=source, seconds=asked.compile_seconds
            )

    def traced_at_own_size(
        self, problem: Problem, source: str, target: str, asked: Options
    ) -> TracedCandidate:
        """What a text asks for at the problem's own size, which is index 0. Never raises for what a candidate does."""
        return self._trace(source, target, _own_size(problem), asked)

    def free_sizes(
        self, problem: Problem, source: str, small: Mapping[str, int], asked: Options
    ) -> list[dict[str, int]]:
        """Groups of sizes that a candidate takes at small values while all others are the problem's own."""
        groups = groups_of_sizes(problem, small)
        requests = [SizeRequest(spec=input_spec(problem))]
        requests += [
            SizeRequest(spec=input_spec(problem.with_sizes(group), as_it_is=True))
            for group in groups
        ]
        target = asked.targets[0] if asked.targets else TRACE_TARGET
        failures = self._trace(source, target, requests, asked).failures
        return [
            group for group, failure in zip(groups, failures[1:], strict=False) if failure is None
        ]

    def compiled_at_own_size(
        self,
        candidate: TracedCandidate,
        target: str,
        source: str,
        asked: Options,
        *,
        texts: Collection[str] = (),
    ) -> dict[str, Compiled]:
        """The kernels of the problem's own size by their keys.

        texts: stages whose text is wanted with each of them (`ptx`, `amdgcn`).
        """
        kernels = _own_kernels(candidate.traced)
        return self._compiler.compile(
            candidate.traced,
            kernels,
            target,
            source=source,
            seconds=asked.compile_seconds,
            texts=texts,
        )

    def _elsewhere(
        self, problem: Problem, source: str, target: str, asked: Options
    ) -> CompileResult:
        """The result for a target beside the main one."""
        candidate = self.traced_at_own_size(problem, source, target, asked)
        return self._for(target, candidate, range(1), source, asked, _own_size(problem))[0]

    def _trace(
        self, source: str, target: str, sizes: list[SizeRequest], asked: Options,
        decided: Callable[[TracedCandidate], bool] = lambda _: False,
        complete: Callable[[TracedCandidate], None] = lambda _: None,
    ) -> TracedCandidate:  # fmt: skip
        return trace_candidate(
            self._zygote,
            source,
            target,
            sizes,
            seconds=asked.compile_seconds,
            allow_import=asked.allow_import,
            decided=decided,
            complete=complete,
        )

    def _for(
        self,
        target: str,
        candidate: TracedCandidate,
        indices: Sequence[int],
        source: str,
        asked: Options,
        sizes: Sequence[SizeRequest],
    ) -> tuple[CompileResult, dict[str, Any]]:
        """sizes: what the candidate was traced at; the problem's own is the first."""
        begun = time.monotonic()
        kernels = kernels_of(candidate.traced, indices) if candidate.traced.traces else []
        compiled: dict[str, Any] = {}
        if kernels:
            compiled = self._compiler.compile(
                candidate.traced, kernels, target, source=source, seconds=asked.compile_seconds
            )
        seconds = time.monotonic() - begun + candidate.seconds
        return compile_result(target, candidate, compiled, seconds, sizes[0].spec.outputs), compiled

    # -------------------------------------------------------------- kernels that only the problem's own size launches
    def all_kernels_checked(
        self, judge: Judge, judged: JudgeFindings, problem: Problem, source: str, candidate: TracedCandidate,
        selection: Selection,
        seed: int, asked: Options, rules: Rules,
    ) -> JudgeFindings:  # fmt: skip
        """A kernel that only the problem's own size launches is looked for at sizes between; where none that can be
        interpreted launches it, it is unchecked.
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
            source, asked.targets[0] if asked.targets else TRACE_TARGET, sizes, asked
        )
        result = judged.result
        for size in tried:
            if missing & _launched(more.traced, size.index):
                found = judge.judge(more, size, (), seed, rules).result
                result = result.with_(tried=(*result.tried, *found.tried), failure=found.failure)
                missing -= _launched(more.traced, size.index)
                if found.failure is not None or not missing:
                    return judged.with_result(result)
        return judged.with_result(
            result.with_(failure=Failure(fault=Fault.UNCHECKED, message=UNCHECKED))
        )


def _own_size(problem: Problem) -> list[SizeRequest]:
    """The problem's own size alone, as it is."""
    return trace_requests(problem, Selection(base=AtSize(index=0, problem=problem)), "cuda:0", 0)


def _own_kernels(traced: Traced) -> list[str]:
    """Keys of what the problem's own size launches."""
    return kernels_of(traced, range(1)) if traced.traces else []


def _sharing(candidate: TracedCandidate) -> TracedCandidate:
    """The same with one binary for kernels of other sizes that differ in what divides their arguments."""
    shared: TracedCandidate = candidate.with_(
        traced=share_binaries(candidate.traced, _own_kernels(candidate.traced))
    )
    return shared


def without_failed_configurations(
    candidate: TracedCandidate, compiled: Mapping[str, Any]
) -> TracedCandidate:
    """The same candidate without the autotune configurations that do not compile: Triton leaves them out, too."""
    broken = {key for key, one in compiled.items() if one.failure is not None}
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
    kept: TracedCandidate = candidate.with_(traced=candidate.traced.with_(traces=traces))
    return kept


def _cut(choice: Choice, broken: set[str]) -> Choice:
    """Unchanged where nothing would be left."""
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
