"""The offline compile, trusted side: starts a candidate's process, keeps its deadline, checks the form of what it says."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tools.handover import copy_new
from tools.results import Cheat, CompileResult, Failure, Fault, KernelResources, clean_text
from tools.sandbox import BadMessage, Process, ProcessDied, ProcessTimedOut, Zygote
from tools.spec import InputSpec, TensorSpec, small_spec
from tools.targets import parse_target

ENTRY = "tools.untrusted.offline:serve"
FP_FUSION = "1"
"""TRITON_DEFAULT_FP_FUSION: its default flips in Triton 3.10, so it is always said."""
MOST_MESSAGES = 20_000

log = logging.getLogger(__name__)


def compile_candidate(
    zygote: Zygote,
    problem_spec: InputSpec,
    source: str,
    targets: Sequence[str],
    *,
    seconds: float = 60.0,
    cache_dir: Path | None = None,
) -> tuple[CompileResult, ...]:
    """One result a target, in the order asked for. `seconds` bounds them all together.

    `cache_dir`: where Triton's cache of the candidate is copied to, for the process that launches on a GPU.

    Raises: ValueError for an unknown target; InfrastructureError where no process could be started.
    """
    names = list(dict.fromkeys(parse_target(t).name for t in targets))
    payload = {
        "source": source, "spec": problem_spec.model_dump(mode="json"), "targets": names, "fp_fusion": FP_FUSION, "tuning_seconds": seconds * 0.6 / len(names),
    }  # fmt: skip
    with zygote.start(ENTRY, payload) as process:
        results = _Listener(process, problem_spec, names, seconds).listen()
        if cache_dir is not None:
            copy_new(process.scratch / "triton", cache_dir)
    return results


class _Listener:
    """Takes what one process says until it is done, dead or late."""

    def __init__(self, process: Process, spec: InputSpec, names: list[str], seconds: float) -> None:
        self._process, self._spec, self._names, self._seconds = process, spec, names, seconds
        self._start = time.monotonic()
        self._results: dict[str, CompileResult] = {}
        self._doing = "starting"

    def listen(self) -> tuple[CompileResult, ...]:
        failure = self._until_done()
        for name in self._names:
            if name not in self._results:
                spent = time.monotonic() - self._start
                self._results[name] = CompileResult(target=name, failure=failure, seconds=spent)
        return tuple(self._results[name] for name in self._names)

    def _until_done(self) -> Failure:
        """The failure of the targets that no result came for."""
        for _ in range(MOST_MESSAGES):
            try:
                message = self._process.receive(max(self._start + self._seconds - time.monotonic(), 0.01))
                if "done" in message:
                    break
                self._take(message)
            except ProcessTimedOut:
                return Failure(fault=Fault.TIMEOUT, message=f"not compiled within {self._seconds:g} s: {self._doing}")
            except ProcessDied as death:
                return self._death(death)
            except (BadMessage, KeyError, TypeError, ValueError, ValidationError, RecursionError) as error:
                return _forged(
                    f"what came from the process has not the form of a compile result: {type(error).__name__}"
                )
        return _forged("the process said that it was done and gave no result")

    def _take(self, message: dict[str, Any]) -> None:
        if "progress" in message:
            self._doing = _said(message["progress"])
            return
        if "needs" in message:
            small = small_spec(self._spec)
            self._process.send({"small": small and small.model_dump(mode="json")})
            return
        result = CompileResult.model_validate(message["result"])
        if result.target not in self._names or result.target in self._results:
            raise ValueError("a result for a target that was not asked for")
        result = _capped(result)
        self._results[result.target] = result.with_(
            failure=result.failure or _outputs_failure(message["outputs"], self._spec)
        )

    def _death(self, death: ProcessDied) -> Failure:
        lines = self._process.output.strip().splitlines()
        tail = f"; last output: {clean_text(lines[-1], 200)}" if lines else ""
        fault = Fault.MEMORY if lines and "MemoryError" in lines[-1] else Fault.CRASH
        return Failure(fault=fault, message=f"{death.describe()} while {self._doing}{tail}")


def _forged(message: str) -> Failure:
    return Failure(fault=Fault.CHEAT, cheat=Cheat.FORGERY, message=message)


def _said(progress: dict[str, Any]) -> str:
    stage, target = clean_text(progress["stage"], 20), clean_text(progress["target"], 20)
    if stage != "compile":
        return {"import": "importing the module", "build": "building ModelNew", "forward": "running forward"}.get(
            stage, stage
        )
    config = ", ".join(
        f"{clean_text(k, 40)}={clean_text(v, 40)}" for k, v in list(dict(progress["config"]).items())[:12]
    )
    return f"compiling kernel {clean_text(progress['kernel'], 120)} for {target}" + (f" ({config})" if config else "")


def _capped(result: CompileResult) -> CompileResult:
    """Text from a candidate's process is data: capped and cleaned."""
    failure = result.failure
    if failure is not None:
        failure = Failure(
            fault=failure.fault,
            message=clean_text(failure.message, 1000),
            where=failure.where,
            trace=clean_text(failure.trace, 2000),
        )
    census = result.census.with_(
        **{n: _counts(getattr(result.census, n)) for n in ("launches", "compute_ops", "layout_ops", "host_reads")}
    )
    return result.with_(
        failure=failure,
        census=census,
        kernels=tuple(_named(k) for k in result.kernels[:200]),
        notes=tuple(clean_text(n, 300) for n in result.notes[:20]),
    )


def _named(kernel: KernelResources) -> KernelResources:
    return kernel.with_(
        name=clean_text(kernel.name, 200), config={clean_text(k, 80): v for k, v in list(kernel.config.items())[:60]}
    )


def _counts(found: dict[str, int]) -> dict[str, int]:
    return {clean_text(name, 120): count for name, count in list(found.items())[:200]}


def _outputs_failure(told: dict[str, Any], spec: InputSpec) -> Failure | None:
    """Number, shape and dtype of what forward returned against the reference's. None where they agree."""
    of = (small_spec(spec) or spec) if told["of"] == "small" else spec
    wanted = of.outputs
    got = list(told["tensors"])
    if len(got) != len(wanted):
        return Failure(fault=Fault.OUTPUT, message=f"forward returns {len(got)} values, the reference {len(wanted)}")
    return next((f for i, (g, w) in enumerate(zip(got, wanted, strict=True)) if (f := _output_failure(i, g, w))), None)


def _output_failure(index: int, got: dict[str, Any], wanted: TensorSpec) -> Failure | None:
    if wanted.dtype == "none":
        return None
    if "other" in got:
        return Failure(fault=Fault.OUTPUT, message=f"output {index} is {clean_text(got['other'], 60)}, not a tensor")
    shape, dtype = tuple(int(n) for n in got["shape"]), clean_text(got["dtype"], 40)
    if shape != wanted.shape:
        return Failure(
            fault=Fault.SHAPE, message=f"output {index} has shape {shape}, the reference's has {wanted.shape}"
        )
    if dtype != wanted.dtype:
        return Failure(fault=Fault.DTYPE, message=f"output {index} is {dtype}, the reference's is {wanted.dtype}")
    if got["device"] != "cuda":
        return Failure(
            fault=Fault.OUTPUT, message=f"output {index} is on {clean_text(got['device'], 20)}, not on the GPU"
        )
    return None
