"""Candidates traced in a real sandbox, and the zygote that compiles their kernels."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from kernelwright.agent.problems.finding import CATALOGUE
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.input_spec import input_spec
from kernelwright.tools.sandbox import ProcessKind, Zygote
from kernelwright.tools.trace.trace import Traced
from kernelwright.tools.tracing.client import SizeRequest, trace_candidate

KERNELS = Path(__file__).resolve().parents[2] / "kernels"


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    with Zygote(ProcessKind.COMPILE) as made:
        yield made


@pytest.fixture(scope="session")
def traced(zygote: Zygote) -> Callable[[Path], Traced]:
    """What a candidate's file asks for at its problem's own size."""

    @cache
    def trace(path: Path) -> Traced:
        source = path.read_text()
        name = re.search(r"^# problem: *(\S+)", source, re.MULTILINE)
        folder = (
            KERNELS / "problems"
            if name and (KERNELS / "problems" / f"{name[1]}.py").exists()
            else CATALOGUE
        )
        problem = (folder / f"{name[1] if name else path.stem}.py").read_text()
        spec = input_spec(Problem(name=path.stem, source=problem))
        found = trace_candidate(zygote, source, "sm_90", [SizeRequest(spec=spec)])
        assert found.failures in ((), (None,)), found.failures
        return found.traced

    return trace
