"""Traces one candidate's host code to be shown: at the problem's own size, and at the size that is judged first
where that is another.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

from kernelwright.agent.reporting.verdicts.trace import CandidateTrace, TracedSize
from kernelwright.tools.problem import Problem
from kernelwright.tools.sandbox import ProcessKind, Zygote

TRACE_TIMEOUT_SECONDS = 60.0
"""Seconds for tracing both sizes together."""


def trace_host_code(
    problem: Problem, source: str, target: str, device: str, allow_import: Sequence[str] = (),
    zygote: Zygote | None = None,
) -> CandidateTrace:  # fmt: skip
    """What the candidate's own process asked for. `device` decides which size is judged first: cpu or cuda:N.

    zygote: of kind COMPILE, which stays open; None starts one for this.

    A candidate that fails is a value. Raises ProblemError where the reference itself cannot be used,
    InfrastructureError where no process could be started.
    """
    from kernelwright.tools.evaluation.pipeline import WARM_KINDS
    from kernelwright.tools.sizing.selection import select_sizes, trace_requests
    from kernelwright.tools.tracing.client import trace_candidate

    selection = select_sizes(problem, source, device, seed=0, count=0)
    asked = trace_requests(problem, selection, device, seed=0)
    own = (
        Zygote(ProcessKind.COMPILE, warm=WARM_KINDS[ProcessKind.COMPILE], spare=False)
        if zygote is None
        else nullcontext(zygote)
    )
    with own as warm:
        found = trace_candidate(
            warm, source, target, asked, seconds=TRACE_TIMEOUT_SECONDS, allow_import=allow_import
        )
    labels = [({}, "the problem's own"), *((size.sizes, size.why) for size in selection.every)]
    traces = found.traced.traces or (None,) * len(found.failures)
    at = tuple(
        TracedSize(sizes=sizes, why=why, inputs=request.spec.inputs, trace=trace, failure=failure)
        for (sizes, why), request, trace, failure in zip(
            labels, asked, traces, found.failures, strict=True
        )
    )
    return CandidateTrace(
        problem=problem.name, target=target, at=at, functions=found.traced.functions, kernels=found.traced.kernels,
        notes=found.notes, seconds=found.seconds,
    )  # fmt: skip
