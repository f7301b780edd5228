"""The wheel as a stranger installs it: one import package, beside a project that has a `tools` and an `agent` of its
own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # the build takes ten seconds and more
ROOT = Path(__file__).parents[1]
OWN_PACKAGES = ("tools", "agent", "policies", "rl", "store")
PUBLIC = ("check", "solve", "Problem", "Report", "Store", "Judge")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built from this checkout without an environment of its own: the build needs no network."""
    out = tmp_path_factory.mktemp("dist")
    line = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(out),
        str(ROOT),
    ]
    built = subprocess.run(line, capture_output=True, text=True, check=False, timeout=500)
    assert built.returncode == 0, built.stdout[-2000:] + built.stderr[-2000:]
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def project(wheel, tmp_path_factory) -> Path:
    """A folder with packages of these names of its own, and an environment that has the wheel and, by a path file, the
    dependencies of this one.
    """
    folder = tmp_path_factory.mktemp("project")
    venv.EnvBuilder(symlinks=True, with_pip=False).create(folder / "env")
    install = [sys.executable, "-m", "pip", "--python", str(folder / "env" / "bin" / "python"), "install", "-q",
    "--no-deps", "--no-index", str(wheel)]  # fmt: skip
    installed = subprocess.run(install, capture_output=True, text=True, check=False, timeout=500)
    assert installed.returncode == 0, installed.stderr
    (packages_of(folder) / "dependencies.pth").write_text(
        f"{sysconfig.get_path('purelib')}\n", encoding="utf-8"
    )
    for name in OWN_PACKAGES:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("OWNER = 'the project'\n", encoding="utf-8")
    return folder


def packages_of(folder: Path) -> Path:
    return next((folder / "env" / "lib").glob("python*/site-packages"))


def run(project: Path, *arguments: str) -> str:
    told = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    line = [str(project / "env" / "bin" / arguments[0]), *arguments[1:]]
    done = subprocess.run(
        line, cwd=project, env=told, capture_output=True, text=True, check=False, timeout=500
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_holds_one_import_package_with_its_data_and_nothing_else_at_its_top(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"kernelwright"}
    assert not [name for name in names if "__pycache__" in name or "/tests/" in name]
    for needed in (
        "kernelwright/py.typed",
        "kernelwright/agent/problems/catalogue/rope.py",
        "kernelwright/tools/manifests/data/manifest_catalogue.json",
        "kernelwright/agent/reporting/run.html.j2",
    ):
        assert needed in names


def test_the_installed_wheel_and_a_project_s_own_packages_do_not_meet(project):
    code = (
        "import agent, tools, policies, rl, store, kernelwright, kernelwright.tools.problem, kernelwright.agent.cli;"
        "print({m.OWNER for m in (agent, tools, policies, rl, store)}, kernelwright.__file__)"
    )
    said = run(project, "python", "-c", code)
    assert said.startswith("{'the project'}")
    assert str(packages_of(project)) in said


def test_the_installed_wheel_has_its_commands_and_its_documented_names(project):
    assert "Writes Triton GPU kernels" in run(project, "agent", "--help")
    assert "fused_softmax" in run(project, "agent", "problems", "softmax")
    assert "GRPO" in run(project, "rl", "--help")
    code = (
        f"import kernelwright; print([n for n in {PUBLIC} if not getattr(kernelwright, n).__doc__])"
    )
    assert run(project, "python", "-c", code).strip() == "[]"
