"""The judge of one device: holds what problems expect, asks a replayer for a candidate's answers, and says whether they
are right.

One judge serves one device and many candidates, one after the other. A problem's draws, weights and expected outputs
are made once and shared by all its
candidates: no candidate ever sees data, so nothing has to be drawn anew for the next one.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

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
from kernelwright.tools.judging.verdict import Verdict
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
"""After so many verdicts on one problem its draws are made anew from another seed."""
CPU_MARGIN_BYTES = 4096
"""Bytes round shared tensors on a CPU, where every access of a kernel is checked by itself."""


T = TypeVar("T")


def _never(_: Exception) -> bool:
    return False


def _without_memory(error: Exception) -> bool:
    """Whether the candidate's process had no memory left: what is kept here may have been in its way."""
    return isinstance(error, Failed) and error.failure.fault is Fault.MEMORY


class Judge:
    """A context manager. Not thread-safe: one for each lane."""

    def __init__(
        self, device: str, zygote: Zygote, *, gpu: Gpu | None = None, sharers: int = 1,
        give_way: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """device: cpu or cuda:N.

        zygote: of the replayer's process; it is not closed here. gpu: what the driver says of the device.

        sharers: judges, of other processes too, that keep memory on this GPU, or on this CPU. give_way: called between
        two checks, when nothing is under way on the GPU; whoever waits to be alone there goes first.
        """
        self.device, self._give_way = device, give_way
        self.replayer = Replayer("cpu" if device == "cpu" else "cuda:0", zygote)
        self.buffers = (
            Buffers(device, CPU_MARGIN_BYTES)
            if device == "cpu"
            else Buffers(device, keep=1 << 62, unmap=self.replayer.unmap)
        )
        self.profiler = Profiler(device, gpu, sharers) if device != "cpu" else None
        self.memory = GpuMemory(device) if device != "cpu" else None
        self._kept = KeptProblems(self.memory, sharers)
        self.room = None if self.memory is None else RoomOnGpu(
            self.memory, self._kept, self.buffers, self.profiler, self.unmap, gpu, sharers
        )  # fmt: skip
        """None on a CPU."""
        self.problems: set[str] = set()
        """Hashes of the problems that it was handed out for, of which it may keep what they expect."""
        self._seeds: dict[str, tuple[int, int]] = {}

    # -------------------------------------------------------------- seeds
    def seed_for(self, problem: Problem) -> int:
        """A verdict's seed: the upper bits are those of the problem's draws and shared by several candidates, the
        lower 16 choose its sizes.
        """
        epoch, used = self._seeds.get(problem.hash, (_secret(), 0))
        if used >= VERDICTS_PER_SEED:
            epoch, used = _secret(), 0
        self._seeds[problem.hash] = (epoch, used + 1)
        return (epoch << 16) | int.from_bytes(os.urandom(2), "little")

    # -------------------------------------------------------------- what is expected
    def prepared(
        self, problem: Problem, seed: int, like: PreparedProblem | None = None
    ) -> PreparedProblem:
        """The problem set up on this device, the last few kept.

        like: the same problem at another size. Raises ProblemError.
        """
        key = key_of(problem, seed)
        if (known := self._kept.find(key)) is not None:
            return known
        made = prepare_problem(problem, self.device, seed >> 16, like=like)
        self._kept.keep(key, made)
        return made

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
        """A draw of the problem and what should come of it: the same for every candidate of one seed.

        part: of a draw that takes several calls.
        """
        prepared = self.prepared(problem, seed)
        key = (key_of(problem, seed), draw, number, perturbed, part)
        if (known := self._kept.find_draw(key)) is not None:
            return known
        seconds = prepared.exact_seconds
        model = None
        if perturbed and draw is Draw.MATRICES:
            model = structured_model(prepared, (seed >> 16) + 1, part)
        elif perturbed:
            model = self._perturbed_outputs(problem, prepared, seed)
        exact = seconds is not None and (seconds < EXACT_SECONDS or number == 0)
        made = expected_outputs(
            prepared, draw, (seed >> 16) + 7919 * (number + 1), model=model, exact=exact, part=part
        )
        self._kept.keep_draw(key, made)
        return made

    def draw_with_equal_edges(
        self, problem: Problem, seed: int, first: ExpectedOutputs
    ) -> ExpectedOutputs:
        """Another draw whose first and last rows and columns are those of `first`: a fingerprint of a few elements
        does not tell them apart.
        """
        return expected_outputs(
            self.prepared(problem, seed), Draw.OWN, (seed >> 16) + 104729, edges=first.inputs
        )

    def kept_bytes(self) -> int:
        """Bytes of the models, draws and expected outputs that are kept on a CPU for the next candidate."""
        return self._kept.nbytes

    def _perturbed_outputs(self, problem: Problem, prepared: PreparedProblem, seed: int) -> Any:
        if prepared.perturbed is None:
            prepared.perturbed = perturbed_model(prepared, (seed >> 16) + 1)
            self._kept.count_weights(key_of(problem, seed), prepared.perturbed)
        return prepared.perturbed

    # -------------------------------------------------------------- a verdict
    def judge(
        self, candidate: TracedCandidate, base: AtSize, others: Sequence[AtSize], seed: int, rules: Rules,
        *, binaries: Mapping[str, Any] | None = None, progress: Callable[[str], None] = lambda _: None,
        take_whole: Callable[[], None] = lambda: None,
    ) -> JudgeFindings:  # fmt: skip
        """One candidate's correctness.

        others: the other sizes, and variants of one with inputs in other layouts. take_whole: called before the base
        size, with nothing under way on the GPU; from then on nobody else is judged there. Never raises for what a
        candidate does; raises ProblemError where the reference fails at its base size, or is random and its numbers
        differ from the candidate's.
        """

        def before_base(*, anew: bool = False) -> None:
            self._synchronize()
            take_whole()
            if self.room is not None:
                self.room.ask_others_for(base.problem, anew=anew)

        return self._retried_with_memory(
            base.problem, lambda: self._once(candidate, base, others, seed, rules, binaries, progress, before_base),
            before_retry=lambda: before_base(anew=True),
        )  # fmt: skip

    def _retried_with_memory(
        self, problem: Problem, attempt: Callable[[], T], also: Callable[[Exception], bool] = _never,
        before_retry: Callable[[], None] = lambda: None,
    ) -> T:  # fmt: skip
        """The attempt's answer on this device; made once more, with all that is kept given back, where it found no
        memory.

        also: errors that are a lack of memory, too; the second one is passed on as it is. Raises DoesNotFit.
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
                    self.room.make_for(problem, anew=True)
                before_retry()
                return attempt()
            except Exception as error:
                clear_traceback(error)
                if not out_of_memory(error):
                    raise
                raise DoesNotFit(problem.name, self.device) from error

    def _once(
        self, candidate: TracedCandidate, base: AtSize, others: Sequence[AtSize], seed: int, rules: Rules,
        binaries: Any, progress: Callable[[str], None], before_base: Callable[..., None],
    ) -> JudgeFindings:  # fmt: skip
        verdict = Verdict(self, candidate, seed, rules, binaries, progress, before_base)
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
                self.room.make_for(base.problem, anew=True)
                before_base(anew=True)
                verdict = Verdict(self, candidate, seed, rules, binaries, progress)
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
        """Calls a candidate on one variant of a size, with inputs in other layouts, and nothing else."""
        verdict = Verdict(self, candidate, seed, rules, binaries, lambda _: None)
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

        alone: while what it gives is entered, nobody else computes on the GPU. Raises Failed, DoesNotFit, and
        InfrastructureError where another program is at work on this GPU.
        """
        assert self.profiler is not None
        profiler = self.profiler

        def profiled() -> tuple[ProfileResult, OwnWork | None]:
            if (
                self.room is not None
            ):  # the buffers of its checks wait to be used again, and the clock needs others
                self.room.make_for(base.problem, anew=True)
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
        """Times a few calls of one configuration, its answer compared once.

        Raises DoesNotFit, and InfrastructureError where another program is at work on this GPU.
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
        """Lets another process be alone on the GPU, if one waits for that."""
        self._synchronize()
        self._give_way()

    def _synchronize(self) -> None:
        if self.device != "cpu":
            import torch

            torch.cuda.synchronize(self.device)

    # -------------------------------------------------------------- the device and its memory
    def _on_own_device(self) -> AbstractContextManager[Any]:
        """This thread's GPU is the judge's own: torch has a current device for each thread, and what is made without
        naming one lies there.

        On a CPU torch computes in this thread alone: judges work side by side, and on small tensors its other threads
        only wait, and take a core to do so.
        """
        if self.device == "cpu":
            return single_threaded()
        import torch

        return torch.cuda.device(self.device)

    def _release(self) -> None:
        """What was handed out to a candidate is kept for the next one, or given back where it is much."""
        self.buffers.release()
        if self.room is not None:
            self.room.trim()

    def give_back_unused_memory(self) -> None:
        """Gives back what torch keeps for later on a GPU, where that is much and not much is free there."""
        if self.room is not None:
            self.room.give_back_unused()

    def give_memory(self, needed: int) -> None:
        """Lets go of what is kept until so many bytes of the GPU are free. For a judge that is not at work."""
        assert self.room is not None
        with self._on_own_device():
            self.room.give(needed)

    def unmap(self) -> None:
        """Has the replayer's process unmap all that it has of this judge's memory; its trace is closed."""
        self.replayer.forget()

    def forget(self) -> None:
        """Gives back the memory that is kept for speed alone, and ends the replayer's process."""
        self.replayer.close()
        self._kept.clear()
        if self.profiler is not None:
            self.profiler.forget()
        self.buffers.release()
        self.buffers.trim()
        if self.device != "cpu":
            import torch

            gc.collect()
            torch.cuda.empty_cache()

    def name(self) -> str:
        """cpu, or the GPU's name."""
        if self.device == "cpu":
            return "cpu"
        import torch

        return torch.cuda.get_device_name(self.device)

    def close(self) -> None:
        """Ends the replayer and gives memory back."""
        with self._on_own_device() if self._kept else nullcontext():
            self.forget()
            self.buffers.close()

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _secret() -> int:
    """32 bits that nobody can guess; recorded afterwards."""
    return int.from_bytes(os.urandom(4), "little") >> 1


__all__ = ["NUMERIC_FAULTS", "AtSize", "Judge", "JudgeFindings", "Rules"]
