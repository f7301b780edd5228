"""The offline compile's service: a candidate's own host code runs on tensors without values, and each launch is compiled for GPUs that are not there.

Sends {"progress": ...} before each step and {"result": ..., "outputs": ...} for each target, the main one first, then {"done": true}.
{"needs": "small"} asks for the same problem at small sizes, and is answered with {"small": spec or null}.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import torch._dynamo.config  # noqa: F401 - FakeTensorMode imports it: better once in the zygote than in each process

from tools.results import Census, CompileResult
from tools.sandbox.channel import Channel
from tools.targets import Target, parse_target
from tools.untrusted import launchers, offline_census, pretend_gpu, symbols
from tools.untrusted.attempt import Attempt
from tools.untrusted.plain import NOTE

REAL_BYTES = 256 << 20
"""Inputs up to this size are drawn at full shapes where the host code reads values."""


def serve(channel: Channel, payload: dict[str, Any]) -> None:
    """payload: source, spec (tools.spec.InputSpec as JSON), targets, fp_fusion, tuning_seconds."""
    os.environ["TRITON_DEFAULT_FP_FUSION"] = str(payload["fp_fusion"])
    tempfile.tempdir = str(Path.cwd())  # the zygote's own, which was looked up before, cannot be written here
    path = Path.cwd() / "candidate.py"
    path.write_text(payload["source"], "utf-8")

    def ask() -> Any:
        channel.send({"needs": "small"})
        return channel.receive()["small"]

    for name in payload["targets"]:

        def tell(step: dict[str, Any], name: str = name) -> None:
            channel.send({"progress": {"target": name, **step}})

        result, outputs = compile_for(parse_target(name), path, payload, tell, ask)
        channel.send({"result": result.model_dump(mode="json"), "outputs": outputs})
    launchers.wait()
    channel.send({"done": True})


def compile_for(
    target: Target, path: Path, payload: dict[str, Any], tell: Any, ask: Any
) -> tuple[CompileResult, dict[str, Any]]:
    """The result for one target, and the outputs' shapes with the name of the spec they belong to."""
    start = time.monotonic()
    spec = payload["spec"]
    tensors, which = "fake", "full"
    first = attempt = _attempt(target, path, payload, tell, spec, fake=True)
    notes = []
    if first.may_need_values:
        small = None if spec["bytes"] <= REAL_BYTES else ask()
        which = "small" if small else "full"
        second = _attempt(target, path, payload, tell, small or spec, fake=False)
        if second.failure is None or not second.may_need_values:
            attempt, tensors = second, "cpu"
            notes.append(f"host code ran on values ({which} shapes): without them {_short(first)}")
    mode = "plain" if symbols.missing() else "jit"
    notes += attempt.notes() + ([f"{NOTE}: {', '.join(symbols.missing())}"] if mode == "plain" else [])
    result = CompileResult(
        target=target.name, failure=attempt.failure, kernels=tuple(attempt.recorder.resources()), census=_census(attempt),
        tensors=tensors, mode=mode, notes=tuple(notes[:20]), seconds=time.monotonic() - start,
    )  # fmt: skip
    return result, {"of": which if tensors == "cpu" else "full", "tensors": attempt.outputs}


def _attempt(
    target: Target, path: Path, payload: dict[str, Any], tell: Any, spec: dict[str, Any], *, fake: bool
) -> Attempt:
    pretend_gpu.ignored.clear()
    attempt = Attempt(target, path, tell, float(payload["tuning_seconds"]))
    attempt.run(spec, fake=fake)
    return attempt


def _short(attempt: Attempt) -> str:
    return attempt.failure.message[:160] if attempt.failure else ""


def _census(attempt: Attempt) -> Census:
    told = attempt.census.counts.as_message()
    told.pop("operations", None)
    return Census(launches=dict(attempt.recorder.launches), threads=offline_census.threads["started"], **told)
