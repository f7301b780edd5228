"""What is compiled from a kernel's text against what Triton's JIT makes of the candidate on a GPU: the same PTX and
the same code, for every right kernel of tests/kernels and every unusual one of tests/honest.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from bench.judge_suites import EXPLOITS, HONEST, header, honest
from kernelwright.tools.compiling.compiled import Compiled
from kernelwright.tools.compiling.compiler import Compiler
from kernelwright.tools.hardware.binary import code_hash
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.input_spec import input_spec
from kernelwright.tools.sandbox import ProcessKind, Zygote
from kernelwright.tools.tracing.client import SizeRequest, trace_candidate

pytestmark = pytest.mark.gpu

TESTS = Path(__file__).resolve().parents[1]
CATALOGUE = TESTS.parent / "agent" / "problems" / "catalogue"
CANDIDATES = sorted((TESTS / "kernels" / "good").glob("*.py"))
UNUSUAL = [
    entry.path
    for entry in honest()
    if entry.path.parent == HONEST and entry.on_cpu != "needs-gpu" and entry.tried_on("cuda:0")
]

ON_THE_GPU = """
import gc, importlib.util, json, sys, traceback
sys.path.insert(0, sys.argv[1])
import torch, triton
from triton.compiler import compiler
from kernelwright.tools.hardware.binary import code_hash
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.reference import Reference

made = {}
original = compiler.CompiledKernel._init_handles

def watched(self):
    loaded = self.module is not None
    original(self)
    if not loaded:
        made[self.hash] = {
            "name": self.metadata.name, "registers": self.n_regs, "spills": self.n_spills * 4,
            "shared": self.metadata.shared,
            "hash": code_hash(self.kernel), "ptx": self.asm["ptx"],
        }

compiler.CompiledKernel._init_handles = watched
answers = {}
for candidate, problem in json.load(sys.stdin):
    made.clear()
    try:
        reference = Reference(Problem(name="p", source=open(problem).read()), "cuda")
        spec = importlib.util.spec_from_file_location("candidate", candidate)
        module = importlib.util.module_from_spec(spec)
        sys.modules["candidate"] = module
        spec.loader.exec_module(module)
        arguments = reference.init_arguments()
        with torch.device("cuda"), torch.no_grad():
            model = module.ModelNew(*arguments).to("cuda")
        with torch.no_grad():
            model(*reference.arguments(reference.inputs(0)))
        torch.cuda.synchronize()
        answers[candidate] = list(made.values())
    except Exception:
        answers[candidate] = traceback.format_exc()
    reference = module = model = None
    gc.collect()
    torch.cuda.empty_cache()
json.dump(answers, open(sys.argv[2], "w"))
"""


def problem_of(candidate: Path) -> Path:
    name = header(candidate.read_text())["problem"]
    if name.endswith(".py"):
        return EXPLOITS / name
    own = TESTS / "kernels" / "problems" / f"{name}.py"
    return own if own.exists() else CATALOGUE / f"{name}.py"


def made_by_the_jit(candidates: Sequence[Path], folder: Path) -> dict[str, Any]:
    """What the JIT made of every candidate, in one process with a cache of its own."""
    script, answer = folder / "launch.py", folder / "answer.json"
    script.write_text(ON_THE_GPU)
    environment = {
        **os.environ,
        "TRITON_CACHE_DIR": str(folder / "cache"),
        "TRITON_DEFAULT_FP_FUSION": "1",
    }
    asked = json.dumps([[str(c), str(problem_of(c))] for c in candidates])
    command = [sys.executable, str(script), str(TESTS.parent), str(answer)]
    subprocess.run(command, input=asked, text=True, check=True, env=environment, timeout=560)
    found: dict[str, Any] = json.loads(answer.read_text())
    return found


def asked_for(request: pytest.FixtureRequest, candidates: Sequence[Path]) -> list[Path]:
    """Those of the candidates that this run of pytest has chosen."""
    chosen = {
        item.callspec.params.get("candidate")
        for item in request.session.items
        if hasattr(item, "callspec")
    }
    return [c for c in candidates if c in chosen]


@pytest.fixture(scope="module")
def launched(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    return made_by_the_jit(asked_for(request, CANDIDATES), tmp_path_factory.mktemp("jit"))


@pytest.fixture(scope="module")
def launched_unusually(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    return made_by_the_jit(asked_for(request, UNUSUAL), tmp_path_factory.mktemp("jit"))


@pytest.fixture(scope="module")
def target() -> str:
    from kernelwright.tools.hardware.gpus import read_driver

    return str(read_driver().gpus[0].target)


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with Zygote(ProcessKind.COMPILE) as made:
        yield made


@pytest.fixture(scope="module")
def compiler(zygote: Zygote) -> Compiler:
    return Compiler(zygote)


@pytest.mark.parametrize("candidate", CANDIDATES, ids=[c.stem for c in CANDIDATES])
def test_every_launch_is_what_the_text_compiles_to(
    candidate: Path, zygote: Zygote, compiler: Compiler, target: str, launched: dict[str, Any]
) -> None:
    assert_the_same_code(candidate, zygote, compiler, target, launched[str(candidate)])


@pytest.mark.slow
@pytest.mark.parametrize("candidate", UNUSUAL, ids=[c.stem for c in UNUSUAL])
def test_every_unusual_launch_is_what_the_text_compiles_to(
    candidate: Path,
    zygote: Zygote,
    compiler: Compiler,
    target: str,
    launched_unusually: dict[str, Any],
) -> None:
    assert_the_same_code(candidate, zygote, compiler, target, launched_unusually[str(candidate)])


def assert_the_same_code(
    candidate: Path, zygote: Zygote, compiler: Compiler, target: str, real: Any
) -> None:
    """real: what the JIT made of it, or the traceback of what went wrong."""
    source = candidate.read_text()
    spec = input_spec(
        Problem(name=candidate.stem, source=problem_of(candidate).read_text()), as_it_is=True
    )
    found = trace_candidate(zygote, source, target, [SizeRequest(spec=spec)])
    traced = found.traced
    made = compiler.compile(
        traced, list(traced.kernels), target, source=source, seconds=200, texts=("ptx",)
    )
    assert made
    assert [c.failure for c in made.values() if c.failure is not None] == []
    from_text = {code_hash(c.binary): c for c in made.values()}
    assert isinstance(real, list), real
    assert real
    for kernel in real:
        said = from_text.get(kernel["hash"]) or under_another_name(kernel, list(made.values()))
        assert said is not None, f"{kernel['name']}: the JIT made other code than its text gives"
        assert without_debug(said.texts["ptx"], said.name) == without_debug(
            kernel["ptx"], kernel["name"]
        )
        assert said.resources is not None
        told = (said.resources.registers, said.resources.spills, said.metadata["shared"])
        assert told == (kernel["registers"], kernel["spills"], kernel["shared"])


def under_another_name(kernel: dict[str, Any], made: Sequence[Compiled]) -> Compiled | None:
    """What was made of the text of a kernel that names itself (`repr=`), which is no part of its text; one of the
    same name, whose PTX then shows the difference, where there is none.
    """
    wanted = without_debug(kernel["ptx"], kernel["name"])
    equal = [c for c in made if without_debug(c.texts["ptx"], c.name) == wanted]
    return next(iter(equal or [c for c in made if c.name == kernel["name"]]), None)


def without_debug(ptx: str, name: str) -> list[str]:
    """PTX without the kernel's name and what says where a line comes from: files, lines, labels and sections for
    debuggers.
    """
    return [
        line.split("//")[0].rstrip().replace(name, "kernel")
        for line in ptx.split(".section\t.debug")[0].splitlines()
        if not re.match(r"\s*(\.loc|\.file|//|\$L__(tmp|func_begin|func_end)\w*:|$)", line)
    ]
