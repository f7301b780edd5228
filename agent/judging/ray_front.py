"""Tracing and compiling as tasks of a Ray cluster, on any node with a free core; no GPU is needed.

Both steps form one task, because a kernel at the problem's own size is compiled during the tracing
of the other sizes. Both ends speak JSON: no data from a candidate's process is pickled. Ray repeats
no task; a lost task ends the attempt at the verdict with JudgeLost, recorded and repeated by the
caller.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
from collections.abc import Callable
from typing import Any, Literal

from pydantic import ConfigDict, TypeAdapter

from kernelwright.agent.judging.messages import VerdictError
from kernelwright.agent.judging.pool import JudgeLost
from kernelwright.agent.judging.verdict_maker import error_kind, exception_of, one_line
from kernelwright.tools.compiling.compiled import Compiled
from kernelwright.tools.faults import InfrastructureError, Value
from kernelwright.tools.judging.front import Front
from kernelwright.tools.options import Options
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import CompileResult
from kernelwright.tools.sizing.selection import Selection
from kernelwright.tools.tracing.client import TracedCandidate

CANCEL_POLL_SECONDS = 0.25
"""Seconds between two checks for a cancelled verdict."""
STEP_ON_THE_CLUSTER = "tracing and compiling on the cluster"
"""Step reported during the task."""
COMPILE_PROCESSES_OF_A_TASK = 2
"""Compiler processes for the kernels of one candidate; a task has one core."""
PACKAGES_OF_EQUAL_VERSION = ("kernelwright", "triton", "torch")
"""Packages required in the same version on the judge and on the node of the task."""


class FrontRequest(Value):
    """Request to a task: trace and compile this candidate."""

    problem: Problem
    source: str
    selection: Selection
    options: Options
    seed: int
    device: str
    target: str
    """Compilation target: that of the judge's GPU, or of the pretended GPU of a CPU judge."""


class FrontResult(Value):
    """Answer of a task: the result of `Front.traced_and_compiled`."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", ser_json_bytes="base64", val_json_bytes="base64"
    )

    kind: Literal["made"] = "made"
    candidate: TracedCandidate
    compiles: tuple[CompileResult, ...]
    binaries: dict[str, Compiled]
    node: str
    versions: tuple[str, ...]

    def written(self) -> str:
        """Returns the result as JSON. pydantic's own writer would turn infinities into null."""
        return json.dumps(self.model_dump(mode="json"))


_READS: TypeAdapter[FrontResult | VerdictError] = TypeAdapter(FrontResult | VerdictError)


def trace_and_compile(ask: str) -> str:
    """Runs as a task: returns FrontResult or VerdictError as JSON. Never raises an Exception."""
    steps: Callable[[str], None] = lambda doing: None  # noqa: E731
    try:
        request = FrontRequest.model_validate_json(ask)
        front = _front(request.device, request.target)
        candidate, compiles, binaries = front.traced_and_compiled(
            request.problem, request.source, request.selection, request.options, request.seed, steps
        )
        result = FrontResult(
            candidate=candidate, compiles=compiles, binaries=binaries, node=_node(), versions=_versions()
        )  # fmt: skip
        return result.written()
    except Exception as error:
        return VerdictError(
            number=None, error=error_kind(error), message=one_line(error)
        ).model_dump_json()


@functools.cache
def _front(device: str, target: str) -> Front:
    """Returns the front of this worker process. Ray gives a process one task at a time and reuses
    the process.
    """
    from kernelwright.tools.compiling.compiler import Compiler
    from kernelwright.tools.evaluation.pipeline import new_zygote
    from kernelwright.tools.hardware.open_files import raise_open_files_limit
    from kernelwright.tools.sandbox import ProcessKind

    raise_open_files_limit()
    zygote = new_zygote(ProcessKind.COMPILE)
    return Front(zygote, Compiler(zygote, processes=COMPILE_PROCESSES_OF_A_TASK), device, target)


@functools.cache
def _versions() -> tuple[str, ...]:
    return tuple(f"{name} {_version(name)}" for name in PACKAGES_OF_EQUAL_VERSION)


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


def _node() -> str:
    import ray

    return str(ray.util.get_node_ip_address())


class FrontTasks:
    """Implements tools.judging.front.TracesAndCompiles with tasks on a Ray cluster. Thread-safe."""

    def __init__(self, device: str, target: str) -> None:
        import ray

        self._device, self._target = device, target
        self._task = ray.remote(trace_and_compile).options(num_cpus=1, max_retries=0)

    def traced_and_compiled(
        self,
        problem: Problem,
        source: str,
        selection: Selection,
        options: Options,
        seed: int,
        say: Callable[[str], None],
    ) -> tuple[TracedCandidate, tuple[CompileResult, ...], dict[str, Any]]:
        """Traces and compiles a candidate in one task. Raises JudgeLost for a lost task,
        InfrastructureError for different package versions on the node, and the exceptions of `say`
        and of the task's Front.
        """
        ask = FrontRequest(
            problem=problem, source=source, selection=selection, options=options, seed=seed, device=self._device,
            target=self._target,
        )  # fmt: skip
        answer = self._answer(ask, say)
        if isinstance(answer, VerdictError):
            raise exception_of(answer)
        if answer.versions != _versions():
            theirs, ours = ", ".join(answer.versions), ", ".join(_versions())
            raise InfrastructureError(
                f"the node {answer.node} has {theirs}, and the judge {ours}: install the same"
            )
        say(f"traced and compiled on {answer.node}")
        return answer.candidate, answer.compiles, answer.binaries

    def _answer(self, ask: FrontRequest, say: Callable[[str], None]) -> FrontResult | VerdictError:
        import ray

        waited = self._task.remote(ask.model_dump_json())
        try:
            while not ray.wait([waited], timeout=CANCEL_POLL_SECONDS)[0]:
                say(STEP_ON_THE_CLUSTER)
            return _READS.validate_json(ray.get(waited))
        except ray.exceptions.RayError as error:
            why = " ".join(str(error).split())[:300]
            raise JudgeLost(
                f"the task that traced and compiled was lost ({type(error).__name__}: {why})"
            ) from None
        except BaseException:  # the verdict was cancelled
            ray.cancel(waited, force=False)
            raise
