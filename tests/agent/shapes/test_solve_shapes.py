"""`agent solve --shapes --dtype`: a single file that is right at each shape, in the database and in a package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agent.command_in_process import agent_here

LAYER = """
import torch
import torch.nn as nn

rows, width = 6, 16


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width))

    def forward(self, x):
        return torch.relu(x) * self.weight


def get_inputs():
    return [torch.randn(rows, width)]


def get_init_inputs():
    return [width]
"""
SHAPES = [{"name": "empty", "rows": 0}]
CALLS = """
import torch
from layer import Model
from layer_triton import ModelNew

for dtype in (torch.bfloat16, torch.float32):
    layer = Model(16).to(dtype)
    kernel = ModelNew(16).to(dtype)
    kernel.load_state_dict(layer.state_dict())
    for shape in ((0, 16), (5, 16)):
        x = torch.randn(shape, dtype=dtype)
        with torch.no_grad():
            torch.testing.assert_close(kernel(x), layer(x))
    for refused in (torch.randn(2, 3, 16, dtype=dtype), torch.randn(4, 16).half()):
        try:
            kernel(refused)
        except ValueError as error:
            assert "dtypes and ranks" in str(error)
        else:
            raise SystemExit("a call that was not judged is answered")
print("right")
"""
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the layer, its kernel, and the database of the run."""
    folder = tmp_path_factory.mktemp("shapes")
    (folder / "layer.py").write_text(LAYER)
    (folder / "shapes.json").write_text(json.dumps(SHAPES))
    command = ["solve", "layer.py", "--shapes", "shapes.json", "--dtype", "bf16,fp32"]
    command += ["--policy", "compiler", "--device", "cpu", "--db", "runs.db", "--json"]
    ended = agent_here(*command, folder=folder)
    assert ended.returncode == 0, ended.stderr[-2000:]
    (folder / "solved.json").write_text(ended.stdout)
    return folder


def run_python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs Python in the folder, with Triton's interpreter."""
    path = f"{folder / 'scaled' / 'src'}:{folder}:{ROOT / 'src'}:{ROOT}"
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_every_shape_has_a_verdict_in_each_dtype(folder: Path):
    solved = json.loads((folder / "solved.json").read_text())
    rows = [(row["name"], row["inputs"], row["correct"]) for row in solved["report"]["shapes"]]
    assert rows == [
        ("empty bfloat16", ["bfloat16 0x16"], True),
        ("empty float32", ["float32 0x16"], True),
    ]
    assert all(
        row["launches"] == 1 and row["speedup"] is None for row in solved["report"]["shapes"]
    )
    for row in solved["report"]["shapes"]:
        tried = row["report"]["interpreted"]["tried"]
        right = [size["sizes"] for size in tried if size["outcome"] == "right"]
        assert any(sizes.get("rows") == 0 for sizes in right)


@pytest.mark.slow
def test_the_file_is_right_where_it_was_judged_and_refuses_the_rest(folder: Path):
    ended = run_python(folder, "-c", CALLS)
    assert ended.stdout.strip() == "right", ended.stderr[-2000:]


@pytest.mark.slow
def test_the_database_and_a_package_have_the_shapes(folder: Path):
    shown = agent_here("replay", "1", "--db", "runs.db", folder=folder)
    page = agent_here("report", "1", "--db", "runs.db", "--html", "--out", "r.html", folder=folder)
    assert (shown.returncode, page.returncode) == (0, 0), shown.stderr + page.stderr
    line = "empty bfloat16, bfloat16 0x16: correct, 1 launch, not timed"
    assert line in shown.stdout
    assert line in (folder / "r.html").read_text()
    command = [
        "export",
        "layer_triton.py",
        "--as",
        "package",
        "--name",
        "scaled",
        "--out",
        "scaled",
    ]
    exported = agent_here(*command, folder=folder)
    assert exported.returncode == 0, exported.stderr[-2000:]
    tests = run_python(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", "scaled/tests")
    assert "passed" in tests.stdout, tests.stdout[-3000:]
    assert "failed" not in tests.stdout, tests.stdout[-3000:]
