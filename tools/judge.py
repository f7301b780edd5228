"""The judge: draws, computes, holds and compares in this process; the candidate computes in another (TRUST.md).

One judge serves one device and many candidates, one after the other. On a CPU the candidate runs under Triton's interpreter at shrunk sizes.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tools.buffers import Buffers
from tools.checks import Checks
from tools.conversation import Conversation
from tools.handover import copy_new
from tools.ownwork import Rule, judge_own_work
from tools.problem import Problem, ProblemError
from tools.results import Cheat, CorrectnessResult, Failed, Failure, Fault, Isolation, OwnWork, ProfileResult
from tools.sandbox import Kind, Limits, Zygote
from tools.situation import DoesNotFit, Situation, let_go, out_of_memory, set_up

KEPT_PROBLEMS = 12
MUCH = 16
"""Of a GPU that is more than half full, a judge keeps at most this part between two verdicts: others may take turns there."""
TOGETHER = 4
"""Judges that share a GPU keep at most this part of it between them."""

NUMERIC = (Fault.MISMATCH, Fault.PRECISION, Fault.NON_FINITE)


@dataclass(frozen=True)
class Rules:
    """What is asked of a candidate."""

    own_work: Rule = field(default_factory=Rule)
    hidden: tuple[dict[str, int], ...] = ()
    """Other sizes that it must be right at, or refuse with an exception of its own."""
    seconds: float = 120.0
    """For the whole conversation."""
    profile: bool = False
    before_hidden: Callable[[Path], None] = lambda cache: None
    """Called with the candidate's Triton cache before other sizes are tried: what was compiled for them meanwhile is put there."""


@dataclass(frozen=True)
class Judged:
    correctness: CorrectnessResult
    profile: ProfileResult | None = None
    isolation: Isolation | None = None
    output: str = ""


class Judge:
    """A context manager. Not thread-safe: one a lane."""

    def __init__(
        self, device: str, *, limits: Limits | None = None, zygote: Zygote | None = None, sharers: int = 1
    ) -> None:
        """device: cpu or cuda:N. A zygote that is given is shared, and not closed here. sharers: judges that keep something on this device."""
        self.device, self._sharers = device, sharers
        gpu = int(device.partition(":")[2] or 0) if device.startswith("cuda") else None
        self._own_zygote = zygote is None
        self.zygote = zygote or Zygote(Kind.CUDA if gpu is not None else Kind.INTERPRET, gpu=gpu, limits=limits)
        self._situations: OrderedDict[tuple[str, str], Situation] = OrderedDict()
        self._buffers: Buffers | None = None
        self._clock: Any = None
        self._weights_seed = _secret()

    @property
    def on_gpu(self) -> bool:
        return self.device.startswith("cuda")

    def name(self) -> str:
        if not self.on_gpu:
            return "cpu"
        import torch

        return torch.cuda.get_device_name(self.device)

    @property
    def buffers(self) -> Buffers:
        if self._buffers is None:
            if self.on_gpu:
                import torch

                torch.zeros(1, device=self.device)
            self._buffers = Buffers(self.device)
        return self._buffers

    def situation(self, problem: Problem) -> Situation:
        """The problem set up on this device, the last few kept. Raises ProblemError."""
        key = (problem.hash, problem.name)
        if key in self._situations:
            self._situations.move_to_end(key)
            return self._situations[key]
        self.buffers  # noqa: B018  a CUDA context first
        while len(self._situations) >= KEPT_PROBLEMS:
            self._situations.popitem(last=False)
            if self.on_gpu:
                import torch

                torch.cuda.empty_cache()
        self._situations[key] = set_up(problem, self.device, self._weights_seed)
        return self._situations[key]

    def judge(
        self,
        problem: Problem,
        source: str,
        rules: Rules,
        *,
        warm_cache: Path | None = None,
        progress: Callable[[str], None] = lambda _: None,
    ) -> Judged:
        """One candidate's correctness and, where it is asked for and earned, its profile. Never raises for what a candidate does.

        What earlier problems left in the GPU's memory is given back where this one needs it. Raises DoesNotFit where that is not enough,
        InfrastructureError where a clock seems forged and the GPU turns out to be shared with another program.
        """
        with self._here():
            try:
                return self._twice(problem, source, rules, warm_cache, progress)
            except Exception as error:
                let_go(error)
                raise
            finally:
                if self.on_gpu and self._kept() > self._may_keep():
                    self.forget()

    def _twice(
        self, problem: Problem, source: str, rules: Rules, warm_cache: Path | None, progress: Callable[[str], None]
    ) -> Judged:
        judged: Judged | None = None
        try:
            judged = self._once(problem, source, rules, warm_cache, progress)
        except Exception as error:
            if not out_of_memory(error):
                raise
        if judged is not None and not self._in_the_way(judged.correctness.failure):
            return judged
        self.forget()
        try:
            return self._once(problem, source, rules, warm_cache, progress)
        except Exception as error:
            if not out_of_memory(error):
                raise
            raise DoesNotFit(problem.name, self.device) from error

    def _in_the_way(self, failure: Failure | None) -> bool:
        """Whether a candidate found no memory where much is kept here."""
        return (
            failure is not None
            and failure.fault is Fault.MEMORY
            and self.on_gpu
            and self._kept() > self._whole() // MUCH
        )

    def _kept(self) -> int:
        """Bytes that this process has taken: what it keeps for speed may be what the next one's turn wants."""
        import torch

        return torch.cuda.memory_reserved(self.device) + self.buffers.waiting

    def _whole(self) -> int:
        """Bytes of the GPU's memory."""
        import torch

        return int(torch.cuda.mem_get_info(self.device)[1])

    def _may_keep(self) -> int:
        """Bytes, between two verdicts."""
        whole = self._whole()
        fair = whole // (TOGETHER * self._sharers) if self._sharers > 1 else whole
        return min(fair, whole // MUCH) if self._crowded() else fair

    def _crowded(self) -> bool:
        """Whether less than half of the GPU's memory is free."""
        if not self.on_gpu:
            return False
        import torch

        free, whole = torch.cuda.mem_get_info(self.device)
        return bool(free < whole // 2)

    def _here(self) -> AbstractContextManager[Any]:
        """This thread's GPU is the judge's own: torch has a current device for each thread, and what is made without naming one lies there."""
        if not self.on_gpu:
            return nullcontext()
        import torch

        return torch.cuda.device(self.device)

    def forget(self) -> None:
        """Gives back the memory that is kept for speed alone."""
        self._situations.clear()
        if self._buffers is not None:
            self._buffers.trim()
        if self.on_gpu:
            import gc

            import torch

            gc.collect()
            torch.cuda.empty_cache()

    def _leave_room(self) -> None:
        """A candidate shares the GPU with what torch keeps here for later: where that is much, it is given back first."""
        if self._crowded():
            import torch

            torch.cuda.empty_cache()

    def _once(
        self, problem: Problem, source: str, rules: Rules, warm_cache: Path | None, progress: Callable[[str], None]
    ) -> Judged:
        start = time.monotonic()
        situation = self.situation(problem)
        seed = _secret()
        self._leave_room()
        try:
            with self._opened(situation, seed, rules, warm_cache, progress) as checks:
                process = checks.exchange.talk.process
                failure, work, profile = self._all(problem, checks, source, rules, progress)
                result = checks.result(self.name(), failure, work, seed).with_(seconds=time.monotonic() - start)
                judged = Judged(result, profile, process.isolation, process.output)
            if failure is not None and failure.cheat is Cheat.CACHE and checks.doubted is not None:
                failure = self._asked_anew(checks, source, rules, failure, warm_cache, progress)
                judged = replace(judged, correctness=result.with_(failure=failure))
        finally:
            self.buffers.release()
        if self._clock is not None and failure is not None and failure.cheat is Cheat.CLOCK:
            process.gone()
            self._clock.refuse_a_shared_gpu()
        return judged

    @contextmanager
    def _opened(
        self,
        situation: Situation,
        seed: int,
        rules: Rules,
        warm_cache: Path | None,
        progress: Callable[[str], None],
    ) -> Iterator[Checks]:
        """A process of the candidate's own, nothing loaded in it yet. One that took much of the GPU is waited for: the next one, perhaps another judge's, is not to miss it."""
        process = self.zygote.process()
        try:
            with process:
                if warm_cache is not None:
                    copy_new(warm_cache, process.scratch / "triton")
                talk = Conversation(process, rules.seconds)
                process.start(
                    "tools.untrusted.serve:serve",
                    {"device": "cuda:0" if self.on_gpu else "cpu", "file": str(process.scratch / "candidate.py")},
                )
                yield Checks(situation, talk, self.buffers, seed, progress)
        finally:
            if self._crowded():
                process.gone()

    def _asked_anew(
        self,
        heard: Checks,
        source: str,
        rules: Rules,
        failure: Failure,
        warm_cache: Path | None,
        progress: Callable[[str], None],
    ) -> Failure:
        """A draw that was answered wrong while it was timed, asked of a process that has seen nothing: what is wrong there too is no cheat.

        An index of two values that differ by a rounding is right on most draws and wrong on some; an answer remembered is right when it is the first.
        """
        assert heard.doubted is not None
        self.buffers.release()
        progress("asking anew")
        try:
            with self._opened(heard.situation, _secret(), rules, warm_cache, progress) as checks:
                checks.load(source)
                checks.anew(heard.doubted)
        except Failed as failed:
            if failed.failure.fault not in NUMERIC:
                return failure
            message = f"right on the draws of the checks, wrong on one that was timed, and again in a fresh process: {failed.failure.message}"
            return failed.failure.with_(message=message)
        except Exception as error:
            if not out_of_memory(error):
                raise
        return failure

    def _all(
        self, problem: Problem, checks: Checks, source: str, rules: Rules, progress: Callable[[str], None]
    ) -> tuple[Failure | None, OwnWork | None, ProfileResult | None]:
        work: OwnWork | None = None
        profile: ProfileResult | None = None
        try:
            checks.load(source)
            checks.all_draws(after_first=lambda: judge_own_work(checks, rules.own_work))
            work = judge_own_work(checks, rules.own_work)
            if rules.hidden:
                rules.before_hidden(checks.exchange.talk.process.scratch / "triton")
            for sizes in rules.hidden:
                progress(f"hidden sizes {sizes}")
                try:
                    there = self.situation(problem.with_sizes(sizes))
                except ProblemError as error:  # found on meta tensors, which do not see all that an operator asks for
                    checks.notes.append(f"hidden sizes {sizes}: not used, {error}")
                    continue
                checks.hidden(there, sizes, rules.own_work)
            checks.integrity()
            if rules.profile and self.on_gpu:
                progress("timing")
                self.zygote.settle()
                profile = self._profile(problem, checks, rules.own_work)
                work = work.with_(share=profile.own_share, share_of="gpu_time", census=checks.census)
                checks.integrity()
        except Failed as failed:
            return failed.failure, work or checks.partial_work(rules.own_work), profile
        return None, work, profile

    def _profile(self, problem: Problem, checks: Checks, rule: Rule) -> ProfileResult:
        from tools.clock import Clock

        if self._clock is None:
            self._clock = Clock(self.device)
        return self._clock.profile(problem, checks, rule)

    def close(self) -> None:
        if self._own_zygote:
            self.zygote.close()
        self._situations.clear()
        if self._buffers is not None:
            with self._here():
                self._buffers.close()

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _secret() -> int:
    """A seed that nobody can guess; recorded afterwards."""
    return int.from_bytes(os.urandom(6), "little")
