"""Kernels rebuilt from their texts compile to what the candidate's own JITFunctions compile to, and say the same
where they do not compile.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelwright.tools.compiling.compiled import Compiled
from kernelwright.tools.compiling.compiler import Compiler
from kernelwright.tools.hardware.targets import parse_target
from kernelwright.tools.report import Fault
from kernelwright.tools.sandbox import Zygote
from kernelwright.tools.trace.trace import Kernel, Traced

KERNELS = Path(__file__).resolve().parents[2] / "kernels"
QUICK = (
    "fused_softmax",
    "fused_gelu_libdevice",
    "linear_recurrence_associative_scan",
    "matmul_autotune",
    "row_argmax",
)
OTHERS = sorted({p.stem for p in (KERNELS / "good").glob("*.py")} - set(QUICK))
BAD = sorted((KERNELS / "bad").glob("compile_*.py"))
Trace = Callable[[Path], Traced]


@pytest.fixture(scope="module")
def compiler(zygote: Zygote) -> Compiler:
    return Compiler(zygote)


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The JIT's own compilation here, as the sandbox is set up."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")


@pytest.fixture
def module(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The candidate's own module."""
    spec = importlib.util.spec_from_file_location(
        "candidate", KERNELS / "good" / f"{request.param}.py"
    )
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules["candidate"] = made
    spec.loader.exec_module(made)
    yield made
    del sys.modules["candidate"]


@pytest.mark.parametrize(
    "module",
    [*QUICK, *(pytest.param(n, marks=[pytest.mark.slow, pytest.mark.nightly]) for n in OTHERS)],
    indirect=True,
)
def test_the_text_compiles_to_what_the_jit_function_compiles_to(
    module: Any, compiler: Compiler, traced: Trace
) -> None:
    path = Path(module.__file__)
    trace = traced(path)
    made = compiler.compile(
        trace, list(trace.kernels), "sm_90", source=path.read_text(), seconds=300, texts=("ptx",)
    )
    assert made
    for key, compiled in made.items():
        assert compiled.failure is None, compiled.failure
        own = own_compilation(module, trace, trace.kernels[key])
        assert without_debug(compiled.texts["ptx"]) == without_debug(own.asm["ptx"])
        assert_same_resources(compiled, own)


def own_compilation(module: Any, trace: Traced, kernel: Kernel) -> Any:
    """The candidate's JITFunction, compiled with the same specialisation."""
    import triton
    from triton.compiler import ASTSource

    from kernelwright.tools.compiling.text.constants import value

    function = getattr(module, trace.functions[kernel.function].name)
    while not hasattr(function, "params"):
        function = function.fn  # an autotuner's or a heuristic's
    signature = {
        name: tuple(kind) if isinstance(kind, list) else kind
        for name, kind in kernel.signature.items()
    }
    constants = {tuple(path): value(form, {}) for path, form in kernel.constants}
    attributes = {tuple(path): [list(pair) for pair in pairs] for path, pairs in kernel.attributes}
    source = ASTSource(function, signature, constants, attributes)
    return triton.compile(
        source, target=parse_target("sm_90").gpu_target(), options=dict(kernel.options)
    )


def assert_same_resources(compiled: Compiled, own: Any) -> None:
    from kernelwright.tools.compiling.resources import describe

    told = compiled.resources
    wanted = describe(own, parse_target("sm_90"), 0.0)
    assert told is not None
    assert told.with_(seconds=0.0) == wanted
    assert compiled.metadata["shared"] == own.metadata.shared
    assert compiled.metadata["num_warps"] == own.metadata.num_warps
    assert compiled.metadata["name"] == own.metadata.name


def without_debug(ptx: str) -> list[str]:
    """PTX without what says where a line comes from: files, lines, labels and sections for debuggers."""
    body = ptx.split(".section\t.debug")[0]
    return [
        line.split("//")[0].rstrip()
        for line in body.splitlines()
        if not re.match(r"\s*(\.loc|\.file|//|\$L__(tmp|func_begin|func_end)\w*:|$)", line)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("path", BAD, ids=[p.stem for p in BAD])
def test_what_does_not_compile_names_the_line_in_the_candidates_file(
    path: Path, compiler: Compiler, traced: Trace
) -> None:
    source = path.read_text()
    line = re.search(r"^# line: *(\d+)", source, re.MULTILINE)
    assert line is not None
    trace = traced(path)
    made = compiler.compile(trace, list(trace.kernels), "sm_90", source=source, seconds=120)
    failures = [c.failure for c in made.values() if c.failure is not None]
    assert failures
    for failure in failures:
        assert failure.fault is Fault.COMPILE
        assert failure.message.startswith("kernel ")
        assert failure.where is not None
        assert failure.where.line == int(line[1])
        assert failure.where.text == source.splitlines()[failure.where.line - 1]


def test_a_kernel_that_needs_more_shared_memory_than_the_target_has_says_how_much(
    compiler: Compiler, traced: Trace
) -> None:
    path = KERNELS / "bad" / "resources_shared_memory.py"
    trace = traced(path)
    (made,) = compiler.compile(
        trace, list(trace.kernels), "sm_90", source=path.read_text(), seconds=120
    ).values()
    assert made.failure is not None
    assert made.failure.fault is Fault.RESOURCES
    assert made.failure.message == (
        "kernel matmul_kernel needs 524288 bytes of shared memory, sm_90 has 232448: smaller blocks or "
        "fewer stages "
        "help"
    )
    assert made.resources is not None
    assert made.resources.shared == 524288
    assert made.binary == b""


def test_another_target_gets_a_binary_of_its_own(compiler: Compiler, traced: Trace) -> None:
    path = KERNELS / "good" / "vector_add.py"
    trace = traced(path)
    for target, start in (("sm_80", b"\x7fELF"), ("gfx942", b"\x7fELF")):
        (made,) = compiler.compile(
            trace, list(trace.kernels), target, source=path.read_text(), seconds=120
        ).values()
        assert made.failure is None, made.failure
        assert made.target == target
        assert made.binary.startswith(start)
        assert made.resources is not None
        assert made.resources.registers


def test_interpreted_and_compiled_come_from_the_same_environment() -> None:
    """TRITON_DEFAULT_FP_FUSION is part of a compilation's address: this process and the sandbox agree on it."""
    from kernelwright.tools.compiling.compiler import FP_FUSION

    assert os.environ["TRITON_DEFAULT_FP_FUSION"] == FP_FUSION
