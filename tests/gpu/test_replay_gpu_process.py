"""A replaying process on a GPU: what a wild kernel does to it has a name, and the next candidate is replayed as if
nothing had happened.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from kernelwright.tools import wire  # noqa: E402
from kernelwright.tools.compiling.compiler import Compiler  # noqa: E402
from kernelwright.tools.problem import Problem  # noqa: E402
from kernelwright.tools.references.input_spec import input_spec  # noqa: E402
from kernelwright.tools.references.shared_tensors import Buffers  # noqa: E402
from kernelwright.tools.replaying.replayer import Replayer  # noqa: E402
from kernelwright.tools.report import Failed, Fault  # noqa: E402
from kernelwright.tools.sandbox import ProcessKind, Zygote  # noqa: E402
from kernelwright.tools.trace.trace import Launch, all_steps  # noqa: E402
from kernelwright.tools.tracing.client import SizeRequest, trace_candidate  # noqa: E402

pytestmark = pytest.mark.gpu
PROBLEM = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.randn(64, 1000)]
def get_init_inputs():
    return []
"""
CANDIDATE = """
import torch
import torch.nn as nn
import triton
import triton.language as tl

@triton.jit
def relu(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.maximum(tl.load(x + i, mask=i < n, other=0.0), 0.0)
    tl.store(out + i, value, mask=i < n)
    WILD

class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        relu[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
"""
NOTHING = ""
BESIDE = "tl.store(out + n + 3, 1.0)"
FAR = "tl.store(out + n + (1 << 44), 1.0)"
ENDLESS = """go = tl.load(x)
    while go == tl.load(x, volatile=True):
        go = tl.load(x, volatile=True)"""


@pytest.fixture(scope="module")
def rig() -> Any:
    with (
        Zygote(ProcessKind.COMPILE, warm="kernelwright.tools.evaluation.warming:warm") as tracing,
        Zygote(
            ProcessKind.CUDA, gpu=0, warm="kernelwright.tools.replaying.gpu.launching:warm"
        ) as running,
    ):
        yield tracing, Compiler(tracing), Replayer("cuda:0", running), Buffers("cuda:0")


TIMES = 3
SEVERAL = """
@triton.jit
def stray(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i + (1 << 44), 1.0, mask=i < n)

class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), 1024),)
        for _ in range(TIMES):
            relu[grid](x, out, x.numel(), BLOCK=1024)
        stray[grid](out, x.numel(), BLOCK=1024)
        out = torch.neg(out)
        relu[grid](x, out, x.numel(), BLOCK=1024)
        return out
"""
"""In the place of CANDIDATE's model."""


def replayed(
    rig: Any, wild: str, seconds: float = 60.0, candidate: str = CANDIDATE
) -> tuple[Any, Any, Any]:
    """The reply to one call, what came, and what should have come."""
    tracing, compiler, replayer, buffers = rig
    source = candidate.replace("WILD", wild or "pass")
    spec = input_spec(Problem(name="relu", source=PROBLEM))
    found = trace_candidate(tracing, source, "sm_90", [SizeRequest(spec=spec)], seconds=60)
    assert found.failures == (None,), found.failures
    trace = found.traced.traces[0]
    kernels = list({s.kernel: None for s in all_steps(trace.first) if isinstance(s, Launch)})
    binaries = compiler.compile(found.traced, kernels, "sm_90", source=source, seconds=60)
    x = torch.randn(64, 1000, device="cuda")
    [given, place] = buffers.together([x, x])
    given.tensor.copy_(x)
    torch.cuda.synchronize()
    replayer.open(found.traced, 0, {}, seed=0, seconds=seconds, binaries=binaries)
    reply = replayer.call([wire.describe(given.tensor, lambda _: given.spec)], [given], [place])
    return reply, place.tensor, torch.relu(x)


def test_a_right_kernel_is_right(rig):
    reply, got, wanted = replayed(rig, NOTHING)
    assert reply.copied == (True,)
    assert not reply.written_outside
    assert torch.equal(got, wanted)


def test_a_write_beside_an_output_is_told(rig):
    reply, _, _ = replayed(rig, BESIDE)
    assert reply.written_outside


def test_a_process_that_unmaps_the_judges_memory_lets_the_judge_free_it_and_goes_on(rig):
    _, _, replayer, buffers = rig
    replayed(rig, NOTHING)
    process = replayer.process
    buffers.release()
    replayer.forget()
    buffers.trim()
    assert replayer.process is process
    reply, got, wanted = replayed(rig, NOTHING)
    assert replayer.process is process
    assert torch.equal(got, wanted)
    assert not reply.written_outside


@pytest.mark.parametrize(
    ("wild", "fault"),
    [(FAR, Fault.OUT_OF_BOUNDS), (ENDLESS, Fault.TIMEOUT)],
    ids=["far", "endless"],
)
def test_a_kernel_that_ends_its_process_is_named_and_the_next_candidate_is_replayed(
    rig, wild, fault
):
    replayed(rig, NOTHING)
    with pytest.raises(Failed) as failed:
        replayed(rig, wild, seconds=4.0)
    assert failed.value.failure.fault is fault, failed.value.failure
    begun = time.monotonic()
    reply, got, wanted = replayed(rig, NOTHING)
    print(f"{fault}: the next candidate after {time.monotonic() - begun:.2f} s")
    assert torch.equal(got, wanted)
    assert not reply.written_outside


def test_the_launch_among_several_that_ended_the_process_is_named_with_its_line(rig):
    kernel = CANDIDATE[: CANDIDATE.index("class ModelNew")]
    source = kernel + SEVERAL.replace("TIMES", str(TIMES))
    begun = time.monotonic()
    with pytest.raises(Failed) as failed:
        replayed(rig, NOTHING, candidate=source)
    failure = failed.value.failure
    print(f"named after {time.monotonic() - begun:.2f} s: {failure.message}")
    assert failure.fault is Fault.OUT_OF_BOUNDS
    wanted = f"stray (launch {TIMES + 1} of {TIMES + 2}) read or wrote an illegal address"
    assert failure.message == f"{wanted} (CUDA_ERROR_ILLEGAL_ADDRESS)"
    line = source.splitlines().index("        stray[grid](out, x.numel(), BLOCK=1024)") + 1
    assert failure.where is not None
    assert failure.where.line == line
    reply, got, expected = replayed(rig, NOTHING)
    assert torch.equal(got, expected)
    assert not reply.written_outside
