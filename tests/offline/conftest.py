"""One warm zygote for all tests of the offline compile, and candidates to vary."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.compile import compile_candidate
from tools.problem import Problem
from tools.results import CompileResult
from tools.sandbox import Kind, Zygote
from tools.spec import input_spec

CANDIDATES = Path(__file__).parent / "candidates"


def _read(name: str) -> str:
    return (CANDIDATES / f"{name}.py").read_text()


class Offline:
    """Compiles sources in real processes."""

    softmax_source = _read("softmax")
    softmax_problem = Problem(name="softmax", source=_read("softmax_problem"))
    matmul_problem = Problem(name="matmul", source=_read("matmul_problem"))

    def __init__(self, zygote: Zygote) -> None:
        self.zygote = zygote

    def softmax(self, body: str) -> str:
        """The softmax kernel under another ModelNew."""
        start = self.softmax_source.index("class ModelNew")
        methods = textwrap.indent(textwrap.dedent(body), "    ")
        return self.softmax_source[:start] + "class ModelNew(nn.Module):\n" + methods

    def matmul(self, options: str | None = None, *, precision: str = "tf32", decorator: str = "") -> str:
        """The matmul kernel with other launch arguments, precision or decorator."""
        source = _read("matmul").replace('"tf32"', f'"{precision}"').replace("# configs", decorator)
        return source if options is None else source.replace("BM=64, BN=64, BK=32, num_warps=4", options)

    def compiled(
        self, source: str, problem: Problem = softmax_problem, target: str = "sm_90", seconds: float = 120
    ) -> CompileResult:
        (result,) = self.matrix(source, [target], problem, seconds)
        return result

    def matrix(
        self, source: str, targets: list[str], problem: Problem = softmax_problem, seconds: float = 120
    ) -> tuple[CompileResult, ...]:
        return compile_candidate(self.zygote, input_spec(problem), source, targets, seconds=seconds)


@pytest.fixture(scope="session")
def offline() -> Iterator[Offline]:
    with Zygote(Kind.COMPILE) as zygote:
        yield Offline(zygote)
