"""The checks of a written kernel file on a GPU: in a CUDA graph, under torch.compile, and what they cost the host."""

from __future__ import annotations

import importlib.util
import statistics
import time
from types import ModuleType

import pytest
import torch

from kernelwright.agent.contracts.guarded import guarded_kernel
from kernelwright.tools.report import CorrectnessResult, Report, Tried
from tests.agent.contracts.test_guards_on_a_gpu import KERNEL, PROBLEM

pytestmark = pytest.mark.gpu
CHANNELS = 6
MAX_GUARD_MICROSECONDS = 100.0
"""Maximum host time of the checks of one call; a launch by Triton takes about 30."""


def imported(path) -> ModuleType:
    specification = importlib.util.spec_from_file_location(path.stem, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def modules(tmp_path_factory) -> dict[str, ModuleType]:
    """The kernel with its checks, and without."""
    sizes = [{"batch": b, "channels": c} for b, c in ((4, 8), (3, 5), (7, 2))]
    stage = CorrectnessResult(
        device="cpu",
        interpreted=True,
        sizes=sizes[0],
        tried=tuple(Tried(sizes=size) for size in sizes),
    )
    report = Report(
        problem="p",
        problem_hash="h",
        candidate_hash="c",
        correct=True,
        judged_on="cpu",
        interpreted=stage,
    )
    folder = tmp_path_factory.mktemp("written")
    texts = {"guarded": guarded_kernel(PROBLEM, KERNEL, report).text, "bare": KERNEL}
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    return {name: imported(folder / f"{name}.py") for name in texts}


@pytest.fixture
def model(modules):
    with torch.device("cuda"):
        model = modules["guarded"].ModelNew(CHANNELS).requires_grad_(False)
    model.norm.weight.uniform_(0.5, 2.0)
    return model


def inputs() -> dict[str, torch.Tensor]:
    x = torch.randn(5, CHANNELS, device="cuda")
    return {
        "as judged": x,
        "transposed": x.t().contiguous().t(),
        "expanded": x[:1].expand(5, CHANNELS),
    }


@pytest.mark.parametrize("layout", ["as judged", "transposed", "expanded"])
def test_a_call_is_right_whatever_the_layout(model, layout):
    x = inputs()[layout]
    torch.testing.assert_close(model(x), x * model.norm.weight)


@pytest.mark.parametrize("layout", ["as judged", "transposed"])
def test_a_cuda_graph_holds_the_call_and_follows_its_input(model, layout):
    x = inputs()[layout]
    model(x)  # compiles
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = model(x)
    x.copy_(torch.randn_like(x))
    graph.replay()
    torch.testing.assert_close(out, x * model.norm.weight)


@pytest.mark.parametrize("layout", ["as judged", "transposed"])
def test_torch_compile_takes_the_call_whole(model, layout):
    x = inputs()[layout]
    got = torch.compile(model, fullgraph=True)(x)
    torch.testing.assert_close(got, x * model.norm.weight)


def test_an_input_of_another_type_is_refused_in_one_line(model):
    with pytest.raises((TypeError, ValueError, RuntimeError)) as refused:
        model(inputs()["as judged"].half())
    assert "\n" not in str(refused.value)


def test_the_checks_cost_the_host_less_than_a_few_launches(modules):
    x = inputs()["as judged"]
    microseconds = {}
    for name, module in modules.items():
        with torch.device("cuda"):
            model = module.ModelNew(CHANNELS).requires_grad_(False)
        times = []
        for _ in range(300):
            torch.cuda.synchronize()
            began = time.perf_counter()
            model(x)
            times.append((time.perf_counter() - began) * 1e6)
        microseconds[name] = statistics.median(times[50:])
    print({name: f"{value:.1f} us" for name, value in microseconds.items()})
    assert microseconds["guarded"] - microseconds["bare"] < MAX_GUARD_MICROSECONDS
