"""One warm zygote for all tests of the offline compile, and candidates to vary."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelwright.tools.compiling.compiled import OUTPUT_FILE
from kernelwright.tools.compiling.compiler import Compiler
from kernelwright.tools.hardware.targets import parse_target
from kernelwright.tools.judging.compile_report import compile_result, kernels_of
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.input_spec import input_spec
from kernelwright.tools.report import CompileResult
from kernelwright.tools.sandbox import ProcessKind, Zygote
from kernelwright.tools.tracing.client import SizeRequest, trace_candidate

CANDIDATES = Path(__file__).parent / "candidates"


def _read(name: str) -> str:
    return (CANDIDATES / f"{name}.py").read_text()


class Offline:
    """Compiles sources in real processes."""

    softmax_source = _read("softmax")
    softmax_problem = Problem(name="softmax", source=_read("softmax_problem"))
    matmul_problem = Problem(name="matmul", source=_read("matmul_problem"))

    def __init__(self, zygote: Zygote) -> None:
        self.zygote, self.compiler = zygote, Compiler(zygote)

    def softmax(self, body: str) -> str:
        """The softmax kernel under another ModelNew."""
        start = self.softmax_source.index("class ModelNew")
        methods = textwrap.indent(textwrap.dedent(body), "    ")
        return self.softmax_source[:start] + "class ModelNew(nn.Module):\n" + methods

    def matmul(
        self, options: str | None = None, *, precision: str = "tf32", decorator: str = ""
    ) -> str:
        """The matmul kernel with other launch arguments, precision or decorator."""
        source = _read("matmul").replace('"tf32"', f'"{precision}"').replace("# configs", decorator)
        return (
            source
            if options is None
            else source.replace("BM=64, BN=64, BK=32, num_warps=4", options)
        )

    def compiled(
        self,
        source: str,
        problem: Problem = softmax_problem,
        target: str = "sm_90",
        seconds: float = 120,
    ) -> CompileResult:
        (result,) = self.matrix(source, [target], problem, seconds)
        return result

    def matrix(
        self,
        source: str,
        targets: list[str],
        problem: Problem = softmax_problem,
        seconds: float = 120,
    ) -> tuple[CompileResult, ...]:
        names = list(dict.fromkeys(parse_target(t).name for t in targets))
        return tuple(self._one(source, name, problem, seconds) for name in names)

    def _one(self, source: str, target: str, problem: Problem, seconds: float) -> CompileResult:
        asked = SizeRequest(spec=input_spec(problem))
        candidate = trace_candidate(self.zygote, source, target, [asked], seconds=seconds)
        kernels = kernels_of(candidate.traced, [0]) if candidate.traced.traces else []
        compiled = self.compiler.compile(
            candidate.traced, kernels, target, source=source, seconds=seconds
        )
        return compile_result(target, candidate, compiled, 0.0, input_spec(problem).outputs)


@pytest.fixture(scope="session")
def offline() -> Iterator[Offline]:
    with Zygote(
        ProcessKind.COMPILE,
        warm="kernelwright.tools.evaluation.warming:warm",
        private_scratch=True,
        handed_out=(OUTPUT_FILE,),
    ) as zygote:
        yield Offline(zygote)
