"""The offline compile against the JIT on a real GPU with the same Triton: registers, spills, shared memory and code of every launch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tools.compile import compile_candidate
from tools.problem import Problem
from tools.sandbox import Kind, Zygote
from tools.spec import input_spec

pytestmark = pytest.mark.gpu

TESTS = Path(__file__).resolve().parents[1]
GOOD = TESTS / "kernels" / "good"
CATALOGUE = TESTS.parent / "agent" / "catalogue"
NAMES = [
    "fused_softmax", "layer_norm", "matmul", "matmul_fp16", "matmul_fp16_descriptor", "matmul_autotune", "attention", "causal_attention", "cumsum", "row_argmax", "embedding",
    "cross_entropy_loss", "quantize_rows_int8", "conv1d", "linear_recurrence_associative_scan",
]  # fmt: skip

ON_THE_GPU = """
import importlib.util, json, sys
import torch, triton
from triton.runtime.jit import JITFunction
from triton.compiler import compiler
sys.path.insert(0, sys.argv[4])
from tools.problem import Problem
from tools.reference import Reference
from tools.untrusted.binary import code_hash

made = {}
original = compiler.CompiledKernel._init_handles

def watched(self):
    original(self)
    made[self.hash] = {"name": self.metadata.name, "registers": self.n_regs, "spills": self.n_spills * 4, "shared": self.metadata.shared, "hash": code_hash(self.kernel), "cubin": len(self.kernel)}

compiler.CompiledKernel._init_handles = watched
reference = Reference(Problem(name="p", source=open(sys.argv[2]).read()), "cuda")
spec = importlib.util.spec_from_file_location("candidate", sys.argv[1])
module = importlib.util.module_from_spec(spec)
sys.modules["candidate"] = module
spec.loader.exec_module(module)
positional, named = reference.init_arguments()
with torch.device("cuda"), torch.no_grad():
    model = module.ModelNew(*positional, **named).to("cuda")
with torch.no_grad():
    model(*reference.inputs(0))
torch.cuda.synchronize()
open(sys.argv[3], "w").write(json.dumps(list(made.values())))
"""


def launched(candidate: Path, problem: Path, folder: Path) -> list[dict[str, Any]]:
    """What the JIT on this machine's GPU made of a candidate, in a process and a cache of its own."""
    script, answer = folder / "launch.py", folder / "answer.json"
    script.write_text(ON_THE_GPU)
    environment = {**os.environ, "TRITON_CACHE_DIR": str(folder / "jit"), "TRITON_DEFAULT_FP_FUSION": "1"}
    command = [sys.executable, str(script), str(candidate), str(problem), str(answer), str(TESTS.parent)]
    subprocess.run(command, check=True, env=environment, timeout=280)
    return json.loads(answer.read_text())


@pytest.fixture(scope="module")
def target() -> str:
    from tools.gpus import read_driver

    return read_driver().gpus[0].target


@pytest.fixture(scope="module")
def zygote() -> Any:
    with Zygote(Kind.COMPILE) as made:
        yield made


@pytest.mark.parametrize("name", NAMES)
def test_every_launch_uses_what_the_offline_compile_said(
    name: str, zygote: Zygote, target: str, tmp_path: Path
) -> None:
    candidate = GOOD / f"{name}.py"
    head = dict(
        line[2:].split(": ", 1) for line in candidate.read_text().splitlines() if line.startswith("# problem: ")
    )
    problem = CATALOGUE / f"{head.get('problem', name)}.py"
    spec = input_spec(Problem(name=name, source=problem.read_text()))
    (result,) = compile_candidate(zygote, spec, candidate.read_text(), [target], seconds=200)
    assert result.failure is None, result.failure
    offline = {k.hash: k for k in result.kernels}
    real = launched(candidate, problem, tmp_path)
    assert real
    for kernel in real:
        said = offline.get(kernel["hash"])
        assert said is not None, f"{kernel['name']}: the JIT made other code than the offline compile"
        told = (said.name, said.registers, said.spills, said.shared)
        assert told == (kernel["name"], kernel["registers"], kernel["spills"], kernel["shared"])


def test_spills_are_what_the_driver_says(zygote: Zygote, target: str, tmp_path: Path) -> None:
    """A kernel that surely spills, held to LOCAL_SIZE_BYTES."""
    candidate, problem = tmp_path / "candidate.py", tmp_path / "problem.py"
    candidate.write_text(SPILLING)
    problem.write_text(SPILLING_PROBLEM)
    spec = input_spec(Problem(name="spilling", source=SPILLING_PROBLEM))
    (result,) = compile_candidate(zygote, spec, SPILLING, [target], seconds=200)
    (said,) = result.kernels
    (real,) = launched(candidate, problem, tmp_path)
    assert said.spills is not None
    assert said.spills > 0
    assert (said.spills, said.registers, said.hash) == (real["spills"], real["registers"], real["hash"])


def test_what_was_compiled_offline_is_found_by_the_jit(zygote: Zygote, target: str, tmp_path: Path) -> None:
    """The keys of the cache are the JIT's own: with the copied cache nothing is compiled on the GPU's machine."""
    candidate, problem = GOOD / "fused_softmax.py", CATALOGUE / "fused_softmax.py"
    spec = input_spec(Problem(name="softmax", source=problem.read_text()))
    compile_candidate(zygote, spec, candidate.read_text(), [target], cache_dir=tmp_path / "jit")
    before = {p.name for p in (tmp_path / "jit").iterdir()}
    launched(candidate, problem, tmp_path)
    after = {p.name for p in (tmp_path / "jit").iterdir() if any(p.glob("*.cubin"))}
    assert after <= before


SPILLING = """import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def spilling_kernel(a, b, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]
    x = tl.load(a + m)
    tl.store(b + m, x / tl.sum(x, 1)[:, None] + tl.sum(x, 0)[None, :] * tl.max(x, 1)[:, None])


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        spilling_kernel[(1,)](x, y, BM=128, BN=64, num_warps=1)
        return y
"""

SPILLING_PROBLEM = """import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x / x.sum(1, keepdim=True) + x.sum(0, keepdim=True) * x.amax(1, keepdim=True)


def get_inputs():
    return [torch.rand(128, 64)]


def get_init_inputs():
    return []
"""
