"""Chooses the author of a run's first candidate: the policy, the compiler (policies/inductor), or
a file of the user's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from enum import StrEnum
from pathlib import Path
from threading import Semaphore
from typing import TYPE_CHECKING, Any, Protocol

from kernelwright.agent.candidates.candidate_files import read_candidate
from kernelwright.agent.loop.settings import Settings
from kernelwright.agent.shapes.shape_drafts import drafted_at_shapes
from kernelwright.agent.solve.draft_process import DraftProcess
from kernelwright.agent.solve.template_drafts import TemplateDrafter
from kernelwright.errors import InputError
from kernelwright.policies.base import Origin, Policy
from kernelwright.policies.deadlines import seconds_within
from kernelwright.policies.inductor.decisions.session import PLAN_PROCESS_ENTRY, PlanSession
from kernelwright.policies.inductor.draft import (
    DRAFT_SECONDS,
    POLICY_NAME,
    WARM_UP_ENTRY,
    Draft,
    DraftMode,
    draft,
    draft_request,
)
from kernelwright.policies.inductor.policy import DraftedTurn
from kernelwright.tools.faults import Fault, InfrastructureError
from kernelwright.tools.problem import Problem
from kernelwright.tools.shapes.judged_shapes import judged_shapes
from kernelwright.tools.source import read_source

if TYPE_CHECKING:
    from kernelwright.agent.solve.variants import VariantChooser

VARIED_SIZES = 3
"""Number of other sizes of a problem; a number of the source that differs between them is a size.
"""


class DraftKind(StrEnum):
    """The author of the first candidate."""

    AUTO = "auto"
    """Both: the policy drafts first, and the compiler if the policy's draft does not reach the
    goal.

    The run continues from the better draft.
    """
    POLICY = "policy"
    """The policy alone."""
    COMPILER = "compiler"
    """The compiler first (after a transformation missing in the compiler); the policy if the
    compiler refuses.
    """


UNUSABLE_DRAFTS = frozenset({Fault.NO_CODE, Fault.SYNTAX, Fault.ENTRY_POINT})
"""Faults of a file without any kernel, from which a run could not start."""


def draft_kind(draft: str, policy: str) -> str:
    """Returns the author of the first draft. With a scripted policy `auto` means `policy`, so the
    script stays in order. Raises InputError.
    """
    if draft not in {kind.value for kind in DraftKind}:
        _require_kernel(draft)
        if policy == POLICY_NAME:
            raise InputError(
                f"--draft {draft}: the policy `compiler` repairs no kernel: name a model with --policy"
            )
    if policy == POLICY_NAME:
        return DraftKind.COMPILER.value
    if draft == DraftKind.AUTO and policy.startswith("scripted:"):
        return DraftKind.POLICY.value
    return draft


def _require_kernel(name: str) -> None:
    """Raises InputError if the file of the first candidate is missing, cannot be read, or is no
    kernel.
    """
    path = Path(name).expanduser()
    if not path.exists():
        raise InputError(
            f"--draft is auto, policy, compiler or a file with a kernel, and there is no file {name!r}"
        )
    failure = read_source(read_candidate(path))
    if failure is not None and failure.fault in UNUSABLE_DRAFTS:
        raise InputError(f"--draft {name}: {failure.message}")


class DraftFunction(Protocol):
    """Function that drafts a kernel for a problem."""

    def __call__(self, rule: str, exact: bool = False, deadline: float | None = None) -> Draft:
        """Returns the draft by a rule of own work. exact: large fp32 products are not made of parts."""


class Drafter(AbstractContextManager["Drafter"]):
    """Holds the warm process that writes drafts, started with the first draft. Thread-safe."""

    def __init__(
        self, say: Callable[[str], None] = lambda _: None, seconds: float = DRAFT_SECONDS
    ) -> None:
        """seconds: time limit of a draft, all attempts included; at least a third of it is the
        compiler's.
        """
        self._say, self._process, self._seconds = say, DraftProcess(WARM_UP_ENTRY), seconds
        self._slots = Semaphore(max(1, (os.cpu_count() or 2) // 2))
        self._templates = TemplateDrafter(say, 2 * seconds / 3)
        self._drafts_no_more = False
        self.refused = ""
        """Reason for the last draft's refusal; empty for a written draft."""

    def policy_for(
        self,
        policy: Policy,
        problem: Problem,
        settings: Settings,
        chooser: VariantChooser | None = None,
    ) -> Policy:
        """Returns the policy, wrapped so that the first answer comes from the compiler or a file
        if the settings say so.

        chooser: chooses among the plans of the compiler's decisions. None: the default plan.
        """
        if settings.draft == DraftKind.POLICY:
            return policy
        if settings.draft not in {kind.value for kind in DraftKind}:
            source = read_candidate(Path(settings.draft).expanduser())
            return DraftedTurn(policy, lambda _: Draft(source=source), Origin.FILE)
        turn = 1 if settings.draft == DraftKind.AUTO else 0
        # torch and the compiler take seconds to import: the process starts while the run prepares.
        # Errors are reported by the call that asks for a draft.
        with suppress(InfrastructureError):
            self._process.begin()
        draft = self.function_for(problem, settings, chooser)
        return DraftedTurn(
            policy,
            lambda deadline: draft(settings.own_work, deadline=deadline),
            turn=turn,
            make_exact=lambda deadline: draft(settings.own_work, exact=True, deadline=deadline),
        )

    def function_for(
        self, problem: Problem, settings: Settings, chooser: VariantChooser | None = None
    ) -> DraftFunction:
        """Returns the function that drafts the problem as judged, under a rule of own work.

        The first usable draft of a rule is kept: the choice between rules and the following run
        both need the draft. An exact draft has the default plan.
        """
        from kernelwright.tools.reference_trials.eval_mode import as_judged

        # An empty precision allows all that eager does: cuDNN's convolutions multiply in tf32.
        tf32 = settings.device != "cpu" and settings.precision in ("", "any")
        split = settings.device != "cpu" and settings.precision in ("", "split", "any")
        drafts: dict[tuple[str, bool], Draft] = {}

        def draft(rule: str, exact: bool = False, deadline: float | None = None) -> Draft:
            if (rule, exact) in drafts:
                return drafts[rule, exact]
            judged = problem if settings.train_mode else as_judged(problem).problem
            partial, parts = settings.partial, split and not exact
            # Plans are tried for a single shape: several shapes take the compiler's own.
            if chooser is None or exact or judged_shapes(judged):
                written = self.draft(judged, rule, partial, tf32, parts, deadline)
            else:
                with self.open_plans(judged, rule, partial, tf32, parts, deadline) as session:
                    written = chooser.choose(problem, session, deadline)
                self._check_drafting()
                if not written.usable:
                    # A pattern may be drafted for which the compiler has no plan.
                    written = self._templates.draft(judged) or written
            if written.usable:
                drafts[rule, exact] = written
            return written

        return draft

    def draft(
        self, problem: Problem, own_work: str = "strict", partial: bool = False, tf32: bool = False,
        split: bool = False, deadline: float | None = None,
    ) -> Draft:  # fmt: skip
        """Drafts a kernel: one kernel for a whole pattern if a pattern fits (a reduction in two stages),
        else the compiler's draft, with or without a library's products as the rule of own work
        allows.

        partial: products are the draft's own, and operators without a kernel stay in torch. tf32:
        fp32 convolutions multiply in tf32, the library's default on a GPU. split: large fp32
        products are computed from float16 parts. deadline: time of the monotonic clock after
        which the draft is of no use.
        """

        def draft_at(target: Problem, others: Sequence[Problem]) -> Draft:
            """Drafts for a single shape. others: the problem at its other shapes."""
            start = time.monotonic()
            transformed = self._templates.draft(target)
            self._check_drafting()
            if transformed is not None:
                return transformed
            self._say("drafting (compiler)")
            mode = _mode_of(own_work, partial)
            varied = (*varied_sources(target), *(shape.source for shape in others))
            # The patterns may have used up to two thirds of the time: a third is always the compiler's.
            seconds_left = max(self._seconds - (time.monotonic() - start), self._seconds / 3)
            seconds_left = seconds_within(deadline, seconds_left)
            try:
                compiler_draft = draft(
                    target.source, self.run, mode=mode, partial=partial or mode is DraftMode.SHARE, varied=varied,
                    tf32=tf32, split=split, seconds=max(1, round(seconds_left)),
                )  # fmt: skip
            except InfrastructureError as error:
                compiler_draft = Draft(mode=mode, refused=str(error))
            self.refused = compiler_draft.refused
            if not compiler_draft.usable:
                self._say(f"no draft by the compiler: {compiler_draft.refused}")
            return compiler_draft

        if judged_shapes(problem):
            return drafted_at_shapes(problem, draft_at, self._say)
        return draft_at(problem, ())

    def open_plans(
        self, problem: Problem, own_work: str = "strict", partial: bool = False, tf32: bool = False,
        split: bool = False, deadline: float | None = None,
    ) -> PlanSession:  # fmt: skip
        """Traces a problem, and returns the session that lowers it for each plan of the compiler's decisions.

        The arguments are those of `draft`. Raises InfrastructureError if no process starts.
        """
        self._say("tracing (compiler)")
        mode = _mode_of(own_work, partial)
        seconds = max(1.0, seconds_within(deadline, self._seconds))
        request = draft_request(
            problem.source, mode, partial or mode is DraftMode.SHARE, varied_sources(problem), tf32, split, seconds,
        )  # fmt: skip
        conversation = self._process.open(PLAN_PROCESS_ENTRY, request)
        session = PlanSession(conversation, mode, seconds, deadline)
        self.refused = session.default.refused
        self._check_drafting()
        return session

    def run(self, entry: str, payload: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Calls an entry in a sandboxed process of its own."""
        with self._slots:
            self._check_drafting()
            try:
                return self._process.run(entry, payload, seconds)
            finally:
                self._check_drafting()

    def stop_drafting(self) -> None:
        """Ends the drafts under way: waiting and later callers get KeyboardInterrupt."""
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


def _mode_of(own_work: str, partial: bool) -> DraftMode:
    """Returns the mode of a draft under a rule of own work."""
    return DraftMode.STRICT if own_work == "strict" or partial else DraftMode.SHARE


def varied_sources(problem: Problem) -> tuple[str, ...]:
    """Returns the problem's source at the small sizes of the CPU rungs and at other possible sizes
    of the judge; empty if no size can be tried.
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
    sources += [variant.applied(problem).source for variant in drawn]
    return tuple(dict.fromkeys(sources))
