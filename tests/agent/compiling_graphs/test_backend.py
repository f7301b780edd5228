"""The backend `kernelwright` of torch.compile: records, judged kernels, Inductor, and its start with an empty store."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from kernelwright.agent.compiling_graphs.backend import compile_graph
from tests.agent.command_in_process import agent_here

ROOT = Path(__file__).parents[3]
CALL = """
import sys, time
import torch
from torch._dynamo.backends.registry import register_backend
from kernelwright.agent.compiling_graphs import backend

register_backend(backend.compile_graph, name="kernelwright")
loads = []
load = backend._loaded
backend._loaded = lambda *arguments: (loads.append(1), load(*arguments))[1]

class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.rand(16))

    def forward(self, x):
        return torch.relu(x * self.scale) - x / 2

torch.manual_seed(0)
layer, x = Layer(), torch.randn(6, 16)
start = time.process_time()
compiled = torch.compile(layer, backend=sys.argv[1])
with torch.no_grad():
    y = compiled(x)
seconds = time.process_time() - start
assert torch.allclose(y, layer(x))
compiled(x).sum().backward()
print(len(loads), seconds, layer.scale.grad is not None)
"""


def compiled_with(backend: str, folder: Path, **environment: str) -> tuple[int, float]:
    """Compiles and calls a layer in a process of its own; returns loaded kernels and processor seconds."""
    variables = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", **environment}
    variables["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")
    ended = subprocess.run(
        [sys.executable, "-c", CALL, backend],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    loads, seconds, has_gradient = ended.stdout.split()
    assert has_gradient == "True"
    return int(loads), float(seconds)


def test_the_entry_point_names_the_backend():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    entry = project["entry-points"]["torch_dynamo_backends"]["kernelwright"]
    assert entry == f"{compile_graph.__module__}:{compile_graph.__name__}"


@pytest.mark.slow
def test_a_recorded_graph_is_solved_and_its_kernel_runs_where_it_was_judged(tmp_path):
    assert compiled_with("kernelwright", tmp_path, KERNELWRIGHT_RECORD="1")[0] == 0
    [problem] = (tmp_path / "kernelwright_problems").iterdir()
    assert "self.scale" not in problem.read_text()
    command = [
        "solve",
        f"kernelwright_problems/{problem.name}",
        "--policy",
        "compiler",
        "--device",
        "cpu",
    ]
    assert agent_here(*command, folder=tmp_path).returncode == 0
    assert compiled_with("kernelwright", tmp_path, TRITON_INTERPRET="1")[0] == 1
    # Without the interpreter nothing of a CPU's verdict can run: Inductor compiles.
    assert compiled_with("kernelwright", tmp_path)[0] == 0


@pytest.mark.nightly
@pytest.mark.slow
def test_with_an_empty_store_compiling_starts_as_fast_as_inductor(tmp_path):
    seconds: dict[str, list[float]] = {"inductor": [], "kernelwright": []}
    for _ in range(5):
        for backend, times in seconds.items():
            times.append(compiled_with(backend, tmp_path)[1])
    inductor, ours = (statistics.median(times) for times in seconds.values())
    print(f"inductor {inductor:.2f} s, kernelwright {ours:.2f} s: {ours / inductor:.3f}")
    assert ours < 1.05 * inductor
