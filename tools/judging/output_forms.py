"""Whether what one replayed call returned has the form of what the reference returns. Trusted side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernelwright.tools.comparing.comparison import describe, form
from kernelwright.tools.comparing.forms_of_outputs import describe_difference, shared_memory
from kernelwright.tools.references.prepared_problem import PreparedProblem
from kernelwright.tools.replaying.replayer import Reply
from kernelwright.tools.report import Failed, Failure, Fault, clean_text
from kernelwright.tools.tracing.trace import Trace


def check_form(reply: Reply, trace: Trace, prepared: PreparedProblem, wanted: Sequence[Any]) -> None:
    """Count, type, shape, dtype, device, layout, aliasing.

    wanted: what the reference returned, without the inputs that it changes and the buffers that it updates. Raises
    Failed.
    """
    for outputs in (trace.first_outputs, trace.later_outputs if trace.later is not None else None):
        if outputs is not None and (told := describe_difference(outputs, prepared.reference.paths, wanted)):
            raise Failed(Failure(fault=Fault.OUTPUT, message=clean_text(told, 200)))
    if failure := form(reply.outputs, [describe(o) for o in wanted]):
        raise Failed(failure)
    _check_aliases(reply, prepared, wanted)


def _check_aliases(reply: Reply, prepared: PreparedProblem, wanted: Sequence[Any]) -> None:
    for number, other in enumerate(reply.shared):
        if other is not None and shared_memory([wanted[other], wanted[number]])[1] is None:
            raise _alias(number, f"output {other}")
    for number, alias in enumerate(reply.aliases):
        if alias is not None and (alias.input is None or alias.input != prepared.aliases[number]):
            given = alias.state is None
            raise _alias(
                number, prepared.input_named(alias.input) if given else f"weight {clean_text(alias.state, 60)}"
            )


def _alias(number: int, what: str) -> Failed:
    message = f"output {number} shares memory with {what}; the reference's does not"
    return Failed(Failure(fault=Fault.ALIAS, message=message))
