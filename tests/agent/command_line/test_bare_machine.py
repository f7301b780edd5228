"""A machine without torch, triton and transformers: every command ends with one line that says what to install."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from kernelwright.agent.runtime.errors import Exit

ROOT = Path(__file__).parents[3]
HEAVY = {"torch", "triton", "transformers", "numpy"}
LIGHT = (
    "pydantic",
    "sqlmodel",
    "networkx",
    "tenacity",
    "typer",
    "rich",
    "rapidfuzz",
    "openai",
    "jinja2",
)
KERNEL = "import triton\n\n\nclass ModelNew: ...\n"


def requirements(names: tuple[str, ...]) -> set[str]:
    """The distributions that these need, themselves among them; the heavy ones left out."""
    from packaging.requirements import Requirement

    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop().lower()
        if name in found or name in HEAVY:
            continue
        found.add(name)
        needed = [
            Requirement(line) for line in importlib.metadata.distribution(name).requires or ()
        ]
        waiting += [r.name for r in needed if r.marker is None or r.marker.evaluate({"extra": ""})]
    return found


@pytest.fixture(scope="module")
def bare(tmp_path_factory) -> Path:
    """The Python of an environment with the light dependencies alone, linked from this one."""
    folder = tmp_path_factory.mktemp("bare")
    venv.EnvBuilder(symlinks=True).create(folder)
    packages = next((folder / "lib").glob("python*/site-packages"))
    for name in requirements(LIGHT):
        distribution = importlib.metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files or () if file.parts[0] != ".."}:
            place = Path(str(distribution.locate_file(top)))
            if place.exists() and not (packages / top).exists():
                (packages / top).symlink_to(place)
    (packages / "kernelwright.pth").write_text(f"{ROOT / 'src'}\n")
    return folder / "bin" / "python"


def run(bare: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    told = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    line = [str(bare), "-m", "kernelwright.agent", *arguments]
    return subprocess.run(
        line,
        cwd=folder,
        env={**told, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


def test_the_environment_has_no_torch(bare, tmp_path):
    assert Path(sys.executable) != bare
    tried = subprocess.run(
        [bare, "-c", "import torch"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert "No module named 'torch'" in tried.stderr


def test_the_doctor_of_a_bare_machine_names_what_is_missing_and_how_to_install_it(bare, tmp_path):
    done = run(bare, tmp_path, "doctor")
    assert done.returncode == Exit.INFRASTRUCTURE, done.stderr
    said = " ".join(done.stdout.split())
    assert "targets none: triton is not installed" in said
    assert "torch is not installed pip install 'torch>=" in said
    assert "triton is not installed pip install 'triton>=" in said


@pytest.mark.parametrize(
    "command", ["check kernel.py --problem fused_silu", "solve fused_silu", "batch catalogue"]
)
def test_a_command_that_needs_torch_says_how_to_install_it_in_one_line(bare, tmp_path, command):
    (tmp_path / "kernel.py").write_text(KERNEL)
    done = run(bare, tmp_path, *command.split())
    assert done.returncode == Exit.INFRASTRUCTURE
    assert done.stderr.startswith("agent: torch is not installed: pip install 'torch>="), (
        done.stderr
    )
    assert done.stderr.count("\n") == 1


def test_what_needs_no_torch_works(bare, tmp_path):
    assert "fused_softmax" in run(bare, tmp_path, "problems").stdout
    assert "draft" in run(bare, tmp_path, "machine").stdout
