"""Where a run's first candidate comes from: the policy, the compiler (policies/inductor), or a file of the user's."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from enum import StrEnum
from pathlib import Path
from threading import Semaphore
from typing import Any

from kernelwright.agent.candidates.candidate_files import read_candidate
from kernelwright.agent.loop.settings import Settings
from kernelwright.agent.solve.draft_process import DraftProcess
from kernelwright.agent.solve.template_drafts import TemplateDrafter
from kernelwright.errors import InputError
from kernelwright.policies.base import Origin, Policy
from kernelwright.policies.deadlines import seconds_until
from kernelwright.policies.inductor.draft import (
    DRAFT_SECONDS,
    POLICY_NAME,
    WARM_UP_ENTRY,
    Draft,
    DraftMode,
    draft,
)
from kernelwright.policies.inductor.policy import DraftedTurn
from kernelwright.tools.faults import Fault, InfrastructureError
from kernelwright.tools.problem import Problem
from kernelwright.tools.source import read_source

VARIED_SIZES = 3
"""Other sizes of a problem whose differences tell which numbers are sizes."""


class DraftKind(StrEnum):
    """Who writes the first candidate."""

    AUTO = "auto"
    """Both: the policy drafts first, and the compiler where that draft does not reach the goal.

    The run goes on from the better one.
    """
    POLICY = "policy"
    """The policy alone."""
    COMPILER = "compiler"
    """The compiler first (a transformation that it does not make before it), and the policy where it refuses."""


UNUSABLE_DRAFTS = frozenset({Fault.NO_CODE, Fault.SYNTAX, Fault.ENTRY_POINT})
"""Faults of a file that is no kernel at all: a run that began from it would begin from nothing."""


def draft_kind(asked: str, policy: str) -> str:
    """Returns who drafts. A scripted policy keeps its script, so `auto` is `policy` there. Raises InputError."""
    if asked not in {kind.value for kind in DraftKind}:
        _require_kernel(asked)
        if policy == POLICY_NAME:
            raise InputError(
                f"--draft {asked}: the policy `compiler` repairs no kernel: name a model with --policy"
            )
    if policy == POLICY_NAME:
        return DraftKind.COMPILER.value
    if asked == DraftKind.AUTO and policy.startswith("scripted:"):
        return DraftKind.POLICY.value
    return asked


def _require_kernel(name: str) -> None:
    """Raises InputError where a file given as the first candidate is missing, cannot be read, or is no kernel."""
    path = Path(name).expanduser()
    if not path.exists():
        raise InputError(
            f"--draft is auto, policy, compiler or a file with a kernel, and there is no file {name!r}"
        )
    failure = read_source(read_candidate(path))
    if failure is not None and failure.fault in UNUSABLE_DRAFTS:
        raise InputError(f"--draft {name}: {failure.message}")


class Drafter(AbstractContextManager["Drafter"]):
    """Holds the warm process that drafts are made in. It begins with the first draft; thread-safe."""

    def __init__(
        self, say: Callable[[str], None] = lambda _: None, seconds: float = DRAFT_SECONDS
    ) -> None:
        """seconds: for each draft, with all that is tried before it; a third of them is the compiler's in any case."""
        self._say, self._process, self._seconds = say, DraftProcess(WARM_UP_ENTRY), seconds
        self._places = Semaphore(max(1, (os.cpu_count() or 2) // 2))
        self._templates = TemplateDrafter(say, 2 * seconds / 3)
        self._drafts_no_more = False
        self.refused = ""
        """Why the last draft that was asked for was not made; empty where it was."""

    def policy_for(self, policy: Policy, problem: Problem, settings: Settings) -> Policy:
        """The policy, with the first answer from elsewhere where the settings say so."""
        if settings.draft == DraftKind.POLICY:
            return policy
        if settings.draft not in {kind.value for kind in DraftKind}:
            source = read_candidate(Path(settings.draft).expanduser())
            return DraftedTurn(policy, lambda _: Draft(source=source), Origin.FILE)
        turn = 1 if settings.draft == DraftKind.AUTO else 0
        with suppress(InfrastructureError):  # who asks for a draft hears of it
            self._process.begin()  # torch and the compiler take seconds to import, in which others prepare and answer
        from kernelwright.tools.reference_trials.eval_mode import as_judged

        tf32 = settings.device != "cpu" and settings.precision in ("", "any")
        split = settings.device != "cpu" and settings.precision in ("", "split", "any")

        def made(split: bool, deadline: float | None) -> Draft:
            judged = problem if settings.train_mode else as_judged(problem).problem
            return self.draft(judged, settings.own_work, settings.partial, tf32, split, deadline)

        return DraftedTurn(
            policy,
            functools.partial(made, split),
            turn=turn,
            make_exact=functools.partial(made, False),
        )

    def draft(
        self, problem: Problem, own_work: str = "strict", partial: bool = False, tf32: bool = False,
        split: bool = False, deadline: float | None = None,
    ) -> Draft:  # fmt: skip
        """One kernel in place of a pattern where one fits (flash attention); else the compiler's, strict or with a
        library's products as the rule of own work allows.

        partial: products are the draft's own, and what there is no kernel for stays in torch. tf32: convolutions of
        fp32 multiply as the library's do by default on a GPU. split: large products of fp32 are made of float16 parts.
        deadline: time of the monotonic clock at which nobody waits for it any more.
        """
        start = time.monotonic()
        transformed = self._templates.draft(problem)
        self._check_drafting()
        if transformed is not None:
            return transformed
        self._say("drafting (compiler)")
        strict = own_work == "strict" or partial
        mode = DraftMode.STRICT if strict else DraftMode.SHARE
        varied = varied_sources(problem)
        left = max(self._seconds - (time.monotonic() - start), self._seconds / 3)
        left = min(left, seconds_until(deadline) or left)
        try:
            made = draft(
                problem.source, self.run, mode=mode, partial=partial or not strict, varied=varied, tf32=tf32,
                split=split, seconds=max(1, round(left)),
            )  # fmt: skip
        except InfrastructureError as error:
            made = Draft(mode=mode, refused=str(error))
        self.refused = made.refused
        if not made.usable:
            self._say(f"no draft by the compiler: {made.refused}")
        return made

    def run(self, entry: str, payload: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Calls an entry in a sandboxed process of its own."""
        with self._places:
            self._check_drafting()
            try:
                return self._process.run(entry, payload, seconds)
            finally:
                self._check_drafting()

    def stop_drafting(self) -> None:
        """Ends the drafts under way: who waits for one, or asks from now on, gets KeyboardInterrupt."""
        if not self._drafts_no_more:
            self._drafts_no_more = True
            self._templates.close()
            self._process.close()

    def _check_drafting(self) -> None:
        if self._drafts_no_more:
            raise KeyboardInterrupt

    def __exit__(self, *_: object) -> None:
        self._templates.close()
        self._process.close()


def varied_sources(problem: Problem) -> tuple[str, ...]:
    """The problem at the small sizes of the CPU rungs and at a few others that the judge may draw; empty where none
    can be tried.
    """
    from kernelwright.tools.problem import ProblemError
    from kernelwright.tools.references.small_sizes import shrink
    from kernelwright.tools.sizing.draws import draw_varied

    try:
        small = shrink(problem)
        drawn = draw_varied(problem, small.sizes, (16, 64), 0, VARIED_SIZES).sizes
    except ProblemError:
        return ()
    sources = [problem.with_sizes(small.sizes).source] if small.sizes and small.fits else []
    return tuple(dict.fromkeys([*sources, *(d.applied(problem).source for d in drawn)]))
