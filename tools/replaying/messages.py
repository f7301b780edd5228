"""What the judge sends to a process that replays traces, and how it reads what comes back: as data."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from kernelwright.tools.compiling.program_order import may_wait
from kernelwright.tools.report import Cheat, Failure, Fault, clean_text
from kernelwright.tools.sandbox import Process, ProcessDied
from kernelwright.tools.tracing.trace import Launch, Trace, Traced, all_steps


def trace_as_text(traced: Traced, trace: Trace) -> str:
    """One trace with the kernels that it launches, as text."""
    steps = [*trace.setup, *trace.first, *(trace.later or ())]
    launched = {step.kernel for step in all_steps(steps) if isinstance(step, Launch)}
    part = Traced(
        version=traced.version, functions=traced.functions, kernels={k: traced.kernels[k] for k in launched},
        traces=(trace,)
    )  # fmt: skip
    return part.model_dump_json()


def binaries_of(traced: Traced, trace: Trace, binaries: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Compiled kernels of one trace (tools/compiling/compiler.py): the process cannot read the judge's files."""
    steps = [*trace.setup, *trace.first, *(trace.later or ())]
    launched = {step.kernel for step in all_steps(steps) if isinstance(step, Launch)}
    return {
        key: {
            "binary": base64.b64encode(binaries[key].binary).decode(),
            "reversed": base64.b64encode(binaries[key].reversed).decode(),
            "may_wait": bool(binaries[key].reversed) and may_wait(traced, key),
            "metadata": binaries[key].metadata,
            "signature": traced.kernels[key].signature,
            "failure": failure.model_dump(mode="json") if (failure := binaries[key].failure) else None,
        }
        for key in launched
    }


def seconds_of(reply: Mapping[str, Any]) -> float:
    """Returns the seconds that a set-up took, as the process says; 0 where it says nothing of the kind."""
    value = reply.get("seconds")
    return float(value) if isinstance(value, int | float) else 0.0


def failure_of_forgery(message: str) -> Failure:
    """Returns the failure of a trace that no honest tracer writes."""
    return Failure(fault=Fault.CHEAT, cheat=Cheat.FORGERY, message=message)


def cap_failure(failure: Failure) -> Failure:
    """What the process says of the candidate is data: capped text, and no claim to be a mismatch."""
    return Failure(
        fault=failure.fault, cheat=failure.cheat, message=clean_text(failure.message, 700), where=failure.where,
        trace=clean_text(failure.trace, 2000)
    )  # fmt: skip


def failure_of_death(death: ProcessDied, process: Process, doing: str) -> Failure:
    """Returns the failure of a process that ended. doing: what the judge had asked for."""
    said = process.output.strip().splitlines()
    tail = f"; last output: {said[-1][:200]}" if said else ""
    return Failure(fault=Fault.CRASH, message=f"{death.describe()} while the judge asked to {doing}{tail}")
