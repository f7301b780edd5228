"""Every good kernel of tests/kernels, traced in one sandbox and replayed in another, gives what the reference gives:
two calls, two poisons, two orders of programs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kernelwright.agent.problems.finding import CATALOGUE
from kernelwright.tools.expected.weights import match_by_name, match_by_order
from kernelwright.tools.numerics.seeds import seeded
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.input_spec import input_spec
from kernelwright.tools.sandbox import ProcessKind, Zygote
from kernelwright.tools.trace.forms_of_outputs import flatten
from kernelwright.tools.trace.trace import Trace
from kernelwright.tools.tracing.client import SizeRequest, trace_candidate

KERNELS = Path(__file__).resolve().parents[2] / "kernels"


@pytest.fixture(scope="module")
def tracing() -> Iterator[Zygote]:
    with Zygote(ProcessKind.COMPILE, warm="kernelwright.tools.tracing.tracer:warm") as made:
        yield made


def problem_of(path: Path) -> Problem:
    found = re.search(r"^# problem: *(\S+)", path.read_text(), re.MULTILINE)
    assert found is not None
    folder = next(f for f in (KERNELS / "problems", CATALOGUE) if (f / f"{found[1]}.py").exists())
    problem = Problem(name=found[1], source=(folder / f"{found[1]}.py").read_text())
    return problem.with_sizes(problem.cpu_sizes)


def listed(trace: Trace) -> list[dict[str, object]]:
    return [
        {"kind": "parameter" if n in trace.parameters else "buffer", "name": n, "shape": list(trace.shapes[n]),
        "dtype": trace.dtypes[n]}
        for n in trace.state
    ]  # fmt: skip


def off_by(got: torch.Tensor, wanted: torch.Tensor) -> float:
    return float(
        (got.double() - wanted.double()).abs().max() / wanted.double().abs().max().clamp_min(1e-30)
    )


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted((KERNELS / "good").glob("*.py")), ids=lambda p: p.stem)
def test_a_good_kernel_is_right_when_it_is_replayed(bench, tracing, path):
    problem = problem_of(path)
    answer = trace_candidate(
        tracing, path.read_text(), "sm_90", [SizeRequest(spec=input_spec(problem))]
    )
    assert answer.failures in ((), (None,))
    trace = answer.traced.traces[0]
    assert trace is not None
    world: dict = {}
    exec(problem.source, world)
    with seeded(3), torch.no_grad():
        model = world["Model"](*world["get_init_inputs"]())
        inputs = world["get_inputs"]()
        tensors = [v for v in inputs if isinstance(v, torch.Tensor)]
        wanted = flatten(model(*[v.clone() if isinstance(v, torch.Tensor) else v for v in inputs]))
    state = dict(model.named_parameters()) | dict(model.named_buffers())
    pairs = match_by_order(model, listed(trace)) or match_by_name(model, listed(trace))
    bench.open(
        answer.traced, {theirs: state[ours].detach() for theirs, ours in pairs.items()}, seed=3
    )
    for seed, which in enumerate(("first", "later", "later")):
        if which == "first":
            reply = bench.call(inputs, wanted, call_name=which, poison=0xFF, shuffle=seed, seed=3)
        else:
            for shared, tensor in zip(bench.shared, tensors, strict=True):
                shared.tensor.copy_(tensor)
            reply = bench.again(call_name=which, poison=0x4B, shuffle=seed, seed=3)
        assert all(reply.copied)
        assert (reply.written_outside, reply.read_outside) == ("", "")
        for got, one in zip(bench.got, wanted, strict=True):
            assert off_by(got, one) < (2e-3 if one.dtype == torch.float16 else 2e-5)
