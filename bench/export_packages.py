"""Counts which exported operators pass torch's opcheck: the good kernels of tests/kernels, packaged together.

    python -m bench.export_packages --out bench/results/export_packages.md [NAME ...]

Every kernel is judged, written into one package, and the package's own tests run there (opcheck with and without
gradients, torch.compile(fullgraph=True), outputs and gradients against the reference).
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

import torch

from kernelwright import find_problem
from kernelwright.agent.exporting.package import write_package
from kernelwright.agent.exporting.packaged_kernel import (
    PackagedKernel,
    package_kernel,
    packaged_samples,
    with_distinct_names,
)
from kernelwright.agent.gradients.gradient_problem import NAME_MARK
from kernelwright.agent.reporting.selecting import samples_of
from kernelwright.agent.runtime.databases import open_store
from kernelwright.errors import InputError
from kernelwright.tools.evaluation.pipeline import Evaluator, Options
from kernelwright.tools.problem import Problem, ProblemError

ROOT = Path(__file__).parents[1]
KERNELS = ROOT / "tests" / "kernels" / "good"
CHECKS = {
    "test_the_kernel_runs_and_equals_the_reference": "kernel equals reference",
    "test_torch_compile_keeps_the_operator": "fullgraph",
    "test_gradients_are_those_of_the_reference": "gradients",
    "test_opcheck": "opcheck",
}


def problem_of(path: Path) -> Problem | None:
    """Returns the problem that a kernel's header names."""
    header = re.search(r"^# problem: (\S+)$", path.read_text(), re.MULTILINE)
    if header is None:
        return None
    own = KERNELS.parent / "problems" / f"{header[1]}.py"
    return find_problem(own if own.exists() else header[1].replace("_", " "))


def packaged(
    paths: list[Path], cache: Path, seconds: float
) -> tuple[list[PackagedKernel], dict[str, str]]:
    """Returns the packaged kernels, and why others are not packaged. No kernel is judged after so many seconds."""
    deadline = time.monotonic() + seconds
    kernels: list[PackagedKernel] = []
    refused: dict[str, str] = {}
    device = "cuda:0" if torch.cuda.is_available() else "cpu"
    with Evaluator(device=device, workers=1, cache_dir=cache) as judge:
        for path in paths:
            if time.monotonic() > deadline:
                refused[path.stem] = f"not judged within {seconds:g} s"
                continue
            try:
                problem = problem_of(path)
                assert problem is not None
                report = judge.evaluate(problem, path.read_text(), Options(profile=False))
                if not report.correct:
                    refused[path.stem] = report.explanation
                    continue
                kernel = package_kernel(problem, path.read_text(), report, "tests/kernels")
                kernels.append(kernel.model_copy(update={"name": path.stem}))
            except (InputError, ProblemError) as error:
                refused[path.stem] = str(error)
            print(path.stem, refused.get(path.stem, "packaged"), file=sys.stderr, flush=True)
    return with_distinct_names(kernels), refused


def packaged_store(database: str) -> tuple[list[PackagedKernel], dict[str, str]]:
    """Returns the best kernels of a database, those of gradients with their layers, and why others are not packaged."""
    with open_store(database, readonly=True) as store:
        samples = samples_of(store, None, None)
        kernels: list[PackagedKernel] = []
        refused: dict[str, str] = {}
        for sample in samples:
            name = sample.problem.removesuffix(".py")
            if not sample.correct or name.endswith(NAME_MARK):
                continue
            try:
                kernels += packaged_samples(store, [sample])
            except (InputError, ProblemError) as error:
                refused[name] = str(error)
    return with_distinct_names(kernels), refused


def tested(folder: Path, names: list[str], processes: int) -> dict[str, dict[str, str]]:
    """Runs the package's tests; returns "passed", "skipped" or the failure by kernel and check."""
    path = f"{folder / 'src'}:{os.environ.get('PYTHONPATH', '')}"
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    running: list[tuple[Path, subprocess.Popen[bytes]]] = []
    for number in range(min(processes, len(names))):
        report = folder / f"report_{number}.xml"
        cases = [
            f"tests/test_kernels.py::{check}[{name}]"
            for name in names[number::processes]
            for check in CHECKS
        ]
        process = subprocess.Popen(
            [*command, f"--junit-xml={report}", *cases], cwd=folder, env=environment
        )
        running.append((report, process))
    results: dict[str, dict[str, str]] = defaultdict(dict)
    for report, process in running:
        process.wait()
        for case in ElementTree.parse(report).iter("testcase"):
            check, _, kernel = case.attrib["name"].removesuffix("]").partition("[")
            outcome = "passed"
            for child in case:
                if child.tag in ("failure", "error", "skipped"):
                    outcome = f"{child.tag}: {child.attrib.get('message', '')}"
            results[kernel][CHECKS[check]] = outcome
    return results


def written(results: dict[str, dict[str, str]], refused: dict[str, str]) -> str:
    """Returns the page of the results."""
    device = (
        torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU (Triton's interpreter)"
    )
    lines = [
        "# Exported operators",
        "",
        f"torch {torch.__version__}, {device}, {time.strftime('%Y-%m-%d')}.",
        "",
    ]
    for check in CHECKS.values():
        outcomes = [row[check].partition(":")[0] for row in results.values()]
        counts = {word: outcomes.count(word) for word in ("passed", "failure", "error", "skipped")}
        shown = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
        lines.append(f"- {check}: {shown} of {len(results)} operators")
    lines += ["", f"| kernel | {' | '.join(CHECKS.values())} |", f"|---{'|---' * len(CHECKS)}|"]
    for kernel, row in results.items():
        cells = [" ".join(row[check].split())[:160].replace("|", "/") for check in CHECKS.values()]
        lines.append(f"| {kernel} | {' | '.join(cells)} |")
    lines += ["", "Not packaged:", ""]
    lines += [
        f"- {name}: {' '.join(reason.split())[:200]}" for name, reason in refused.items()
    ] or ["- none"]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Judges, packages and tests; writes the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--cache", type=Path, default=Path(tempfile.gettempdir()) / "export_verdicts"
    )
    parser.add_argument("--folder", type=Path, help="keep the package here")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="judge no longer")
    parser.add_argument("--processes", type=int, default=1, help="processes of the package's tests")
    parser.add_argument("--store", help="the kernels of a database, instead of tests/kernels/good")
    arguments = parser.parse_args()
    paths = [
        path
        for path in sorted(KERNELS.glob("*.py"))
        if not arguments.names or path.stem in arguments.names
    ]
    if arguments.store:
        kernels, refused = packaged_store(arguments.store)
    else:
        kernels, refused = packaged(paths, arguments.cache, arguments.seconds)
    folder = arguments.folder or Path(tempfile.mkdtemp()) / "triton_kernels"
    write_package(folder, "triton_kernels", kernels)
    names = [kernel.name for kernel in kernels]
    page = written(tested(folder, names, arguments.processes), refused)
    print(page)
    if arguments.out:
        arguments.out.write_text(page)


if __name__ == "__main__":
    main()
