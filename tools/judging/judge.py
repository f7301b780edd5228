"""The judge of a device: caches what problems expect, replays a candidate's calls, and judges the
answers.

A judge serves a single device and many candidates in turn. A problem's draws, weights and expected
outputs are computed once and shared by its candidates: no candidate sees data, so nothing must be
drawn again for the next.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from kernelwright.closing_context import ClosingContext
from kernelwright.tools.expected.kept_problems import (
    GpuMemory,
    KeptProblems,
    key_of,
)
from kernelwright.tools.expected.prepared_problem import (
    EXACT_SECONDS,
    DoesNotFit,
    ExpectedOutputs,
    PreparedProblem,
    clear_traceback,
    expected_outputs,
    out_of_memory,
    prepare_problem,
)
from kernelwright.tools.expected.weights import perturbed_model, structured_model
from kernelwright.tools.hardware.gpus import Gpu
from kernelwright.tools.judging.own_work import Rule
from kernelwright.tools.judging.profiling import Profiler
from kernelwright.tools.judging.room_on_gpu import RoomOnGpu
from kernelwright.tools.judging.rules import JudgeFindings, Rules
from kernelwright.tools.judging.size_checks import NUMERIC_FAULTS
from kernelwright.tools.judging.trials import TrialTimes, time_trial
from kernelwright.tools.judging.verdict import VerdictProcess
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.input_distributions import Draw
from kernelwright.tools.references.shared_tensors import Buffers
from kernelwright.tools.references.torch_settings import single_threaded
from kernelwright.tools.replaying.replayer import Replayer
from kernelwright.tools.report import (
    Failed,
    Fault,
    KernelResources,
    LayoutCheck,
    OwnWork,
    ProfileResult,
)
from kernelwright.tools.sandbox import Zygote
from kernelwright.tools.sizing.at_size import AtSize
from kernelwright.tools.tracing.client import TracedCandidate

VERDICTS_PER_SEED = 64
"""Number of verdicts on a problem after which its draws are renewed from another seed."""
CPU_MARGIN_BYTES = 4096
"""Margin around shared tensors on a CPU, in bytes; there each access of a kernel is also checked.
"""


T = TypeVar("T")


def _never(_: Exception) -> bool:
    return False


def _without_memory(error: Exception) -> bool:
    """Returns True if the candidate's process ran out of memory, possibly because of caches here."""
    return isinstance(error, Failed) and error.failure.fault is Fault.MEMORY


class Judge(ClosingContext):
    """Judges candidates on a device. A context manager. Not thread-safe: each lane has its own."""

    def __init__(
        self, device: str, zygote: Zygote, *, gpu: Gpu | None = None, sharers: int = 1,
        give_way: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """Creates the replayer and caches.

        device: cpu or cuda:N. zygote: starts the replaying process; it is not closed here. gpu:
        properties from the driver. sharers: judges, in all processes, that cache memory on this GPU
        or CPU. give_way: called between checks while the GPU is idle; yields the GPU lock to
        waiting timers.
        """
        self.device = device
        self._give_way = give_way
        self.replayer = Replayer("cpu" if device == "cpu" else "cuda:0", zygote)
        self.buffers = (
            Buffers(device, CPU_MARGIN_BYTES)
            if device == "cpu"
            else Buffers(device, keep=1 << 62, unmap=self.replayer.unmap)
        )
        self.profiler = Profiler(device, gpu, sharers) if device != "cpu" else None
        self.memory = GpuMemory(device) if device != "cpu" else None
        self._cache = KeptProblems(self.memory, sharers)
        self.room = None if self.memory is None else RoomOnGpu(
            self.memory, self._cache, self.buffers, self.profiler, self.unmap, gpu, sharers
        )  # fmt: skip
        """Memory management on a GPU; None on a CPU."""
        self.problems: set[str] = set()
        """Hashes of judged problems, whose expected outputs may be cached."""
        self._seeds: dict[str, tuple[int, int]] = {}

    # -------------------------------------------------------------- seeds
    def seed_for(self, problem: Problem) -> int:
        """Returns a verdict's seed: the upper bits select the problem's draws, shared by several
        candidates; the lower 16 its sizes."""
        epoch, used = self._seeds.get(problem.hash, (_secret(), 0))
        if used >= VERDICTS_PER_SEED:
            epoch, used = _secret(), 0
        self._seeds[problem.hash] = (epoch, used + 1)
        return (epoch << 16) | int.from_bytes(os.urandom(2), "little")

    # -------------------------------------------------------------- what is expected
    def prepared(
        self, problem: Problem, seed: int, like: PreparedProblem | None = None
    ) -> PreparedProblem:
        """Returns the problem prepared on this device, cached.

        like: the problem prepared at another size. Raises ProblemError.
        """
        key = key_of(problem, seed)
        if (cached := self._cache.find(key)) is not None:
            return cached
        prepared = prepare_problem(problem, self.device, seed >> 16, like=like)
        self._cache.keep(key, prepared)
        return prepared

    def expected(
        self,
        problem: Problem,
        seed: int,
        draw: Draw,
        number: int,
        *,
        perturbed: bool = False,
        part: int = 0,
    ) -> ExpectedOutputs:
        """Returns a draw of the problem with its expected outputs, equal for all candidates of a
        seed.

        part: index within a draw of several calls.
        """
        prepared = self.prepared(problem, seed)
        key = (key_of(problem, seed), draw, number, perturbed, part)
        if (cached := self._cache.find_draw(key)) is not None:
            return cached
        seconds = prepared.exact_seconds
        model = None
        if perturbed and draw is Draw.MATRICES:
            model = structured_model(prepared, (seed >> 16) + 1, part)
        elif perturbed:
            model = self._perturbed_outputs(problem, prepared, seed)
        exact = seconds is not None and (seconds < EXACT_SECONDS or number == 0)
        drawn = expected_outputs(
            prepared, draw, (seed >> 16) + 7919 * (number + 1), model=model, exact=exact, part=part
        )
        self._cache.keep_draw(key, drawn)
        return drawn

    def draw_with_equal_edges(
        self, problem: Problem, seed: int, first: ExpectedOutputs
    ) -> ExpectedOutputs:
        """Returns another draw with the first and last rows and columns of `first`.

        A fingerprint of a few elements cannot distinguish the two.
        """
        return expected_outputs(
            self.prepared(problem, seed), Draw.OWN, (seed >> 16) + 104729, edges=first.inputs
        )

    def cached_bytes(self) -> int:
        """Returns the size of cached models, draws and expected outputs on a CPU, in bytes."""
        return self._cache.nbytes

    def _perturbed_outputs(self, problem: Problem, prepared: PreparedProblem, seed: int) -> Any:
        if prepared.perturbed is None:
            prepared.perturbed = perturbed_model(prepared, (seed >> 16) + 1)
            self._cache.count_weights(key_of(problem, seed), prepared.perturbed)
        return prepared.perturbed

    # -------------------------------------------------------------- a verdict
    def judge(
        self, candidate: TracedCandidate, base: AtSize, others: Sequence[AtSize], seed: int, rules: Rules,
        *, binaries: Mapping[str, Any] | None = None, progress: Callable[[str], None] = lambda _: None,
        take_whole: Callable[[], None] = lambda: None,
    ) -> JudgeFindings:  # fmt: skip
        """Judges a candidate's correctness.

        others: the other sizes, and variants of a size with inputs in other layouts. take_whole:
        called before the base size while the GPU is idle; excludes other verdicts from the GPU
        afterwards. Never raises for behaviour of the candidate; raises ProblemError if the
        reference fails at its base size, or is random and differs from the candidate by its random
        numbers.
        """

        def before_base(*, again: bool = False) -> None:
            self._synchronize()
            take_whole()
            if self.room is not None:
                self.room.ask_others_for(base.problem, again=again)

        return self._retried_with_memory(
            base.problem, lambda: self._once(candidate, base, others, seed, rules, binaries, progress, before_base),
            before_retry=lambda: before_base(again=True),
        )  # fmt: skip

    def _retried_with_memory(
        self, problem: Problem, attempt: Callable[[], T], also: Callable[[Exception], bool] = _never,
        before_retry: Callable[[], None] = lambda: None,
    ) -> T:  # fmt: skip
        """Returns the attempt's result on this device; after an out-of-memory error frees all
        caches and repeats it once.

        also: recognises further errors as a lack of memory; a second such error is raised
        unchanged. Raises DoesNotFit.
        """
        with self._on_own_device():
            try:
                if self.room is not None:
                    self.room.make_for(problem)
                return attempt()
            except Exception as error:
                clear_traceback(error)
                if not (out_of_memory(error) or also(error)):
                    raise
            self.forget()
            try:
                if self.room is not None:
                    self.room.make_for(problem, again=True)
                before_retry()
                return attempt()
            except Exception as error:
                clear_traceback(error)
                if not out_of_memory(error):
                    raise
                raise DoesNotFit(problem.name, self.device) from error

    def _once(
        self, candidate: TracedCandidate, base: AtSize, others: Sequence[AtSize], seed: int, rules: Rules,
        binaries: Mapping[str, Any] | None, progress: Callable[[str], None], before_base: Callable[..., None],
    ) -> JudgeFindings:  # fmt: skip
        verdict = VerdictProcess(self, candidate, seed, rules, binaries, progress, before_base)
        try:
            failure = verdict.run(base, others)
            if (
                failure is not None
                and failure.fault is Fault.MEMORY
                and self.room is not None
                and self.room.keeps_much()
            ):
                del verdict  # it holds the problem's model
                self.forget()
                self.room.make_for(base.problem, again=True)
                before_base(again=True)
                verdict = VerdictProcess(self, candidate, seed, rules, binaries, progress)
                failure = verdict.run(base, others)
        finally:
            self._release()
        return verdict.judged(failure)

    def check_layouts(
        self,
        candidate: TracedCandidate,
        variant: AtSize,
        seed: int,
        rules: Rules,
        binaries: Mapping[str, Any] | None,
    ) -> tuple[LayoutCheck, ...]:
        """Calls a candidate on a variant of a size, with inputs in other layouts, without other
        checks."""
        verdict = VerdictProcess(self, candidate, seed, rules, binaries, lambda _: None)
        with self._on_own_device():
            try:
                failure = verdict.check_layouts([variant])
            finally:
                self._release()
        return verdict.judged(failure).result.layouts

    def profile(
        self, candidate: TracedCandidate, base: AtSize, seed: int, rule: Rule, work: OwnWork | None,
        binaries: Mapping[str, Any],
        resources: Sequence[KernelResources],
        alone: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> tuple[ProfileResult, OwnWork | None]:  # fmt: skip
        """Times a candidate that passed every check.

        alone: context manager that excludes other computation on the GPU. Raises Failed,
        DoesNotFit, and InfrastructureError if another program uses this GPU.
        """
        assert self.profiler is not None
        profiler = self.profiler

        def profiled() -> tuple[ProfileResult, OwnWork | None]:
            if (
                self.room is not None
            ):  # the buffers of its checks wait to be used again, and the clock needs others
                self.room.make_for(base.problem, again=True)
                self.room.ask_others_for(base.problem)
            try:
                return profiler.profile(
                    self, candidate, base, seed, rule, work, binaries, resources, alone
                )
            finally:
                self._release()

        return self._retried_with_memory(base.problem, profiled, _without_memory)

    def trial(
        self,
        candidate: TracedCandidate,
        base: AtSize,
        seed: int,
        binaries: Mapping[str, Any],
        calls: int,
    ) -> TrialTimes:
        """Times a few calls of a configuration, and compares its answer once.

        Raises DoesNotFit, and InfrastructureError if another program uses this GPU.
        """
        return self._retried_with_memory(
            base.problem, lambda: self._timed_trial(candidate, base, seed, binaries, calls)
        )

    def _timed_trial(
        self,
        candidate: TracedCandidate,
        base: AtSize,
        seed: int,
        binaries: Mapping[str, Any],
        calls: int,
    ) -> TrialTimes:
        try:
            if self.room is not None:
                self.room.ask_others_for(base.problem)
            return time_trial(self, candidate, base, seed, binaries, calls)
        finally:
            self._release()

    def give_way(self) -> None:
        """Yields the GPU to a process that waits for exclusive use."""
        self._synchronize()
        self._give_way()

    def _synchronize(self) -> None:
        if self.device != "cpu":
            import torch

            torch.cuda.synchronize(self.device)

    # -------------------------------------------------------------- the device and its memory
    def _on_own_device(self) -> AbstractContextManager[Any]:
        """Context manager that makes the judge's GPU torch's current device, which is per thread.

        On a CPU restricts torch to this thread: judges run in parallel, and on small tensors
        torch's other threads only wait, and occupy a core.
        """
        if self.device == "cpu":
            return single_threaded()
        import torch

        return torch.cuda.device(self.device)

    def _release(self) -> None:
        """Returns a candidate's buffers to the cache, or frees them if large."""
        self.buffers.release()
        if self.room is not None:
            self.room.trim()

    def give_back_unused_memory(self) -> None:
        """Returns unused memory of torch to the GPU, if large and free memory is scarce."""
        if self.room is not None:
            self.room.give_back_unused()

    def give_memory(self, needed: int) -> None:
        """Frees caches until `needed` bytes of the GPU are free. Only for a judge that is not
        judging."""
        assert self.room is not None
        with self._on_own_device():
            self.room.give(needed)

    def unmap(self) -> None:
        """Unmaps this judge's memory in the replaying process, and closes its trace."""
        self.replayer.forget()

    def forget(self) -> None:
        """Frees all caches and ends the replaying process."""
        self.replayer.close()
        self._cache.clear()
        if self.profiler is not None:
            self.profiler.forget()
        self.buffers.release()
        self.buffers.trim()
        if self.device != "cpu":
            import torch

            gc.collect()
            torch.cuda.empty_cache()

    def name(self) -> str:
        """Returns "cpu", or the GPU's name."""
        if self.device == "cpu":
            return "cpu"
        import torch

        return torch.cuda.get_device_name(self.device)

    def close(self) -> None:
        """Ends the replayer and frees memory."""
        with self._on_own_device() if self._cache else nullcontext():
            self.forget()
            self.buffers.close()


def _secret() -> int:
    """Returns 31 unpredictable bits, recorded afterwards."""
    return int.from_bytes(os.urandom(4), "little") >> 1


__all__ = ["NUMERIC_FAULTS", "AtSize", "Judge", "JudgeFindings", "Rules"]
