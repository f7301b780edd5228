"""A model of more weights than the replaying process keeps allocations of the judge mapped: what the clock is timed on
stays where it is.
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from kernelwright.tools import wire  # noqa: E402
from kernelwright.tools.compiling.compiler import Compiler  # noqa: E402
from kernelwright.tools.problem import Problem  # noqa: E402
from kernelwright.tools.references.input_spec import input_spec  # noqa: E402
from kernelwright.tools.references.shared_tensors import Buffers  # noqa: E402
from kernelwright.tools.replaying.replayer import MAX_MAPPED_ALLOCATIONS, Replayer  # noqa: E402
from kernelwright.tools.sandbox import ProcessKind, Zygote  # noqa: E402
from kernelwright.tools.trace.trace import Launch, all_steps  # noqa: E402
from kernelwright.tools.tracing.client import SizeRequest, trace_candidate  # noqa: E402

pytestmark = pytest.mark.gpu
PROBLEM = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.weights = nn.ParameterList([nn.Parameter(torch.randn(1000)) for _ in range(count)])
    def forward(self, x):
        for weight in self.weights:
            x = x + weight
        return x
def get_inputs():
    return [torch.randn(64, 1000)]
def get_init_inputs():
    return [COUNT]
"""
CANDIDATE = """
import torch
import torch.nn as nn
import triton
import triton.language as tl

@triton.jit
def add(x, weight, out, n, columns, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n) + tl.load(weight + i % columns, mask=i < n)
    tl.store(out + i, value, mask=i < n)

class ModelNew(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.weights = nn.ParameterList([nn.Parameter(torch.randn(1000)) for _ in range(count)])
    def forward(self, x):
        for weight in self.weights:
            out = torch.empty_like(x)
            add[(triton.cdiv(x.numel(), 1024),)](x, weight, out, x.numel(), x.shape[1], BLOCK=1024)
            x = out
        return x
"""


@pytest.mark.parametrize("count", [MAX_MAPPED_ALLOCATIONS // 2, 2 * MAX_MAPPED_ALLOCATIONS])
def test_the_clock_reads_its_inputs_again_after_messages_that_did_not_name_them(count):
    spec = input_spec(Problem(name="sums", source=PROBLEM.replace("COUNT", str(count))))
    with (
        Zygote(ProcessKind.COMPILE, warm="kernelwright.tools.evaluation.warming:warm") as tracing,
        Zygote(
            ProcessKind.CUDA, gpu=0, warm="kernelwright.tools.replaying.gpu.launching:warm"
        ) as running,
        Replayer("cuda:0", running) as replayer,
    ):
        found = trace_candidate(tracing, CANDIDATE, "sm_90", [SizeRequest(spec=spec)], seconds=60)
        assert found.failures == (None,), found.failures
        trace = found.traced.traces[0]
        assert trace is not None
        kernels = list({s.kernel: None for s in all_steps(trace.first) if isinstance(s, Launch)})
        binaries = Compiler(tracing).compile(
            found.traced, kernels, "sm_90", source=CANDIDATE, seconds=60
        )
        buffers = Buffers("cuda:0")
        weights = [torch.randn(1000, device="cuda") for _ in range(count)]
        state = dict(zip(trace.state, buffers.together(weights), strict=True))
        x = torch.randn(64, 1000, device="cuda")
        given, place, *sets = buffers.together([x] * 4)
        for shared, values in zip(
            (*state.values(), given, *sets), (*weights, x, x, x), strict=True
        ):
            shared.tensor.copy_(values)
        torch.cuda.synchronize()

        def described(shared: Any) -> Any:
            return [wire.describe(shared.tensor, lambda _: shared.spec)]

        replayer.open(found.traced, 0, state, seed=0, seconds=60, binaries=binaries)
        replayer.call(described(given), [given], [place])
        opened = {"do": "clock_open", "sets": [described(one) for one in sets]}
        assert replayer.ask(opened, seconds=60, shared=sets)["captured"]
        for _ in range(2):
            assert len(replayer.ask({"do": "clock_block", "order": [0, 1]}, seconds=60)["ms"]) == 2
            checked = {"do": "clock_check", "index": 1, "sets": [[{"tensor": place.spec}]]}
            answer = replayer.ask(checked, seconds=60, shared=[place])
            assert answer["copied"] == [True]
            assert not answer["disturbed"]
            wanted = x.clone()
            for weight in weights:
                wanted += weight
            assert torch.equal(place.tensor, wanted)
        replayer.ask({"do": "clock_close"}, seconds=60)
