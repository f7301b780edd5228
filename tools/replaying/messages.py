"""Messages between the judge and a replaying process, as data."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from kernelwright.tools.compiling.program_order import may_wait
from kernelwright.tools.report import Cheat, Failure, Fault, clean_text
from kernelwright.tools.sandbox import Process, ProcessDied
from kernelwright.tools.trace.trace import Launch, Trace, Traced, all_steps

NAME_CHARACTERS = 32
"""Length of a binary's name, in hexadecimal digits of its SHA-256."""


def trace_as_text(traced: Traced, trace: Trace) -> str:
    """Returns JSON of a trace with the kernels that it launches."""
    steps = [*trace.setup, *trace.first, *(trace.later or ())]
    launched = {step.kernel for step in all_steps(steps) if isinstance(step, Launch)}
    part = Traced(
        version=traced.version,
        functions=traced.functions,
        kernels={k: traced.kernels[k] for k in launched},
        traces=(trace,),
    )
    return part.model_dump_json()


class KernelsOfTrace(NamedTuple):
    """Compiled kernels in a message: the process cannot read the judge's files."""

    kernels: dict[str, dict[str, Any]]
    """Kernel key -> metadata, and binaries by name."""
    images: dict[str, str]
    """Name -> binary in base64."""


def kernels_to_send(traced: Traced, trace: Trace, binaries: Mapping[str, Any]) -> KernelsOfTrace:
    """Returns the compiled kernels (tools/compiling/compiler.py) that the trace launches."""
    steps = [*trace.setup, *trace.first, *(trace.later or ())]
    launched = {step.kernel for step in all_steps(steps) if isinstance(step, Launch)}
    images: dict[str, str] = {}

    def named(binary: bytes) -> str:
        name = hashlib.sha256(binary).hexdigest()[:NAME_CHARACTERS] if binary else ""
        if binary and name not in images:
            images[name] = base64.b64encode(binary).decode()
        return name

    kernels = {
        key: {
            "binary": named(binaries[key].binary),
            "reversed": named(binaries[key].reversed),
            "may_wait": bool(binaries[key].reversed) and may_wait(traced, key),
            "metadata": binaries[key].metadata,
            "signature": traced.kernels[key].signature,
            "failure": failure.model_dump(mode="json")
            if (failure := binaries[key].failure)
            else None,
        }
        for key in launched
    }
    return KernelsOfTrace(kernels, images)


def seconds_of(reply: Mapping[str, Any]) -> float:
    """Returns the seconds of a set-up, as reported; 0 for a malformed report."""
    value = reply.get("seconds")
    return float(value) if isinstance(value, int | float) else 0.0


def failure_of_forgery(message: str) -> Failure:
    """Returns the failure for a trace that no honest tracer writes."""
    return Failure(fault=Fault.CHEAT, cheat=Cheat.FORGERY, message=message)


def cap_failure(failure: Failure) -> Failure:
    """Caps the text of a reported failure: reports are data, and cannot claim a mismatch."""
    return Failure(
        fault=failure.fault,
        cheat=failure.cheat,
        message=clean_text(failure.message, 700),
        where=failure.where,
        trace=clean_text(failure.trace, 2000),
    )


def failure_of_death(death: ProcessDied, process: Process, doing: str) -> Failure:
    """Returns the failure for a process that ended. doing: the judge's request in words."""
    output_lines = process.output.strip().splitlines()
    tail = f"; last output: {output_lines[-1][:200]}" if output_lines else ""
    return Failure(
        fault=Fault.CRASH, message=f"{death.describe()} while the judge asked to {doing}{tail}"
    )
