"""Traces a candidate's host code for display: at the problem's own size, and at the size that is
judged first if it differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from kernelwright.agent.reporting.verdicts.trace import CandidateTrace, TracedSize
from kernelwright.tools.problem import Problem
from kernelwright.tools.sandbox import ProcessKind, Zygote

TRACE_TIMEOUT_SECONDS = 60.0
"""Time limit for tracing both sizes together."""


def trace_host_code(
    problem: Problem, source: str, target: str, device: str, allow_import: Sequence[str] = (),
    zygote: Zygote | None = None,
) -> CandidateTrace:  # fmt: skip
    """Traces the operators and launches of the candidate's host code. `device` (cpu or cuda:N)
    decides which size is judged first.

    zygote: warm process of kind COMPILE, which stays open; None starts a process.

    The failure of a candidate is a value. Raises ProblemError if the reference itself cannot be
    used, InfrastructureError if no process could be started.
    """
    from kernelwright.tools.evaluation.pipeline import WARM_KINDS
    from kernelwright.tools.sizing.selection import select_sizes, trace_requests
    from kernelwright.tools.tracing.client import trace_candidate

    selection = select_sizes(problem, source, device, seed=0, count=0)
    requests = trace_requests(problem, selection, device, seed=0)
    zygote_context: AbstractContextManager[Zygote]
    if zygote is None:
        warm_entry = WARM_KINDS[ProcessKind.COMPILE]
        zygote_context = Zygote(ProcessKind.COMPILE, warm=warm_entry, spare=False)
    else:
        zygote_context = nullcontext(zygote)
    with zygote_context as warm:
        traced = trace_candidate(
            warm, source, target, requests, seconds=TRACE_TIMEOUT_SECONDS, allow_import=allow_import
        )
    labels: list[tuple[dict[str, int], str]] = [({}, "the problem's own")]
    labels += [(size.sizes, size.why) for size in selection.every]
    traces = traced.traced.traces or (None,) * len(traced.failures)
    sizes_traced = []
    for label, request, trace, failure in zip(
        labels, requests, traces, traced.failures, strict=True
    ):
        sizes, why = label
        size = TracedSize(
            sizes=sizes, why=why, inputs=request.spec.inputs, trace=trace, failure=failure
        )
        sizes_traced.append(size)
    return CandidateTrace(
        problem=problem.name,
        target=target,
        at=tuple(sizes_traced),
        functions=traced.traced.functions,
        kernels=traced.traced.kernels,
        notes=traced.notes,
        seconds=traced.seconds,
    )
