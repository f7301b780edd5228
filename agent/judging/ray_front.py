"""Tracing and compiling as tasks of a Ray cluster, on any node with a free core: no GPU is needed for either.

A judge asks for both in one task, because a kernel of the problem's own size is compiled while the other sizes are
traced. Both ends speak JSON: nothing that came out of a candidate's process is pickled. Ray repeats no task; one that
is lost ends the attempt at the verdict (JudgeLost), which who asked for it records and begins again.
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
"""Seconds between two looks at whether a verdict is still wanted."""
STEP_ON_THE_CLUSTER = "tracing and compiling on the cluster"
"""What a verdict is at meanwhile."""
COMPILE_PROCESSES_OF_A_TASK = 2
"""Processes in which the kernels of one candidate are compiled: a task has one core."""
PACKAGES_OF_EQUAL_VERSION = ("kernelwright", "triton", "torch")
"""Packages whose versions must be those of the judge."""


class FrontRequest(Value):
    """Asks a task to trace and compile this candidate."""

    problem: Problem
    source: str
    selection: Selection
    options: Options
    seed: int
    device: str
    target: str
    """The target of the judge's GPU, or what a GPU is pretended to be."""


class FrontResult(Value):
    """What a task answers: the result of `Front.traced_and_compiled`."""

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
        """Writes JSON in which an infinity is an infinity: pydantic's own writing makes it null."""
        return json.dumps(self.model_dump(mode="json"))


_READS: TypeAdapter[FrontResult | VerdictError] = TypeAdapter(FrontResult | VerdictError)


def trace_and_compile(ask: str) -> str:
    """The task: FrontMade, or Trouble, as JSON. Never raises an Exception."""
    steps: Callable[[str], None] = lambda doing: None  # noqa: E731
    try:
        asked = FrontRequest.model_validate_json(ask)
        front = _front(asked.device, asked.target)
        candidate, compiles, binaries = front.traced_and_compiled(
            asked.problem, asked.source, asked.selection, asked.options, asked.seed, steps
        )
        made = FrontResult(
            candidate=candidate, compiles=compiles, binaries=binaries, node=_node(), versions=_versions()
        )  # fmt: skip
        return made.written()
    except Exception as error:
        return VerdictError(
            number=None, error=error_kind(error), message=one_line(error)
        ).model_dump_json()


@functools.cache
def _front(device: str, target: str) -> Front:
    """Returns the front of this worker process, which Ray gives one task at a time and keeps for the next one."""
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
    """Implements tools.judging.front.TracesAndCompiles. Thread-safe."""

    def __init__(self, device: str, target: str) -> None:
        import ray

        self._device, self._target = device, target
        self._task = ray.remote(trace_and_compile).options(num_cpus=1, max_retries=0)

    def traced_and_compiled(
        self,
        problem: Problem,
        source: str,
        selection: Selection,
        asked: Options,
        seed: int,
        say: Callable[[str], None],
    ) -> tuple[TracedCandidate, tuple[CompileResult, ...], dict[str, Any]]:
        """Has a task do both. Raises JudgeLost where it was lost, and what `say` and the task's Front raise."""
        ask = FrontRequest(
            problem=problem, source=source, selection=selection, options=asked, seed=seed, device=self._device,
            target=self._target,
        )  # fmt: skip
        answer = self._answer(ask, say)
        if isinstance(answer, VerdictError):
            raise exception_of(answer)
        if answer.versions != _versions():
            theirs, own = ", ".join(answer.versions), ", ".join(_versions())
            raise InfrastructureError(
                f"the node {answer.node} has {theirs}, and the judge {own}: install the same"
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
        except BaseException:  # nobody wants the verdict any more
            ray.cancel(waited, force=False)
            raise
