"""Writes the packages of `agent export --as`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kernelwright.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelwright.agent.exporting.packaged_kernel import PackagedKernel

PACKAGE_KINDS = ("file", "package", "hf-kernel")


def export_package(
    kind: str,
    id: str | None,
    run: str | None,
    *,
    problem: str | None,
    name: str | None,
    out: Path | None,
    db: str | None,
    say: Callable[[str], None],
) -> str:
    """Writes the package of `--as KIND`; returns a line with its path. Raises InputError."""
    if kind not in PACKAGE_KINDS:
        raise InputError(f"--as {kind!r}: choose {', '.join(PACKAGE_KINDS)}")
    from kernelwright.agent.exporting.hf_kernel import write_hf_kernel
    from kernelwright.agent.exporting.package import write_kernel_file, write_package

    kernels = _selected(id, run, problem, db, say)
    if kind == "file":
        return _write_file(kernels, out, write_kernel_file)
    package = name or _default_name(kernels, run)
    folder = out or Path(package)
    say(f"writing {folder}")
    write = write_package if kind == "package" else write_hf_kernel
    write(folder, package, kernels)
    count = f"{len(kernels)} kernel{'s' if len(kernels) > 1 else ''}"
    next_step = f"pip install {folder}" if kind == "package" else f"kernels: {folder}/build"
    return f"{count} written to {folder} ({next_step})"


def _write_file(
    kernels: list[PackagedKernel], out: Path | None, write: Callable[[Path, PackagedKernel], None]
) -> str:
    if len(kernels) != 1:
        raise InputError(f"{len(kernels)} kernels are no single file: use --as package")
    path = out or Path(f"{kernels[0].name}_triton.py")
    write(path, kernels[0])
    return f"written to {path}"


def _default_name(kernels: list[PackagedKernel], run: str | None) -> str:
    from kernelwright.agent.exporting.packaged_kernel import stem_of

    if len(kernels) == 1:
        return f"{kernels[0].name}_kernel"
    return f"{stem_of(run)}_kernels" if run else "triton_kernels"


def _selected(
    id: str | None, run: str | None, problem: str | None, db: str | None, say: Callable[[str], None]
) -> list[PackagedKernel]:
    from kernelwright.agent.exporting.packaged_kernel import packaged_samples
    from kernelwright.agent.reporting.selecting import samples_of
    from kernelwright.agent.runtime.databases import open_store

    if id is not None and id.endswith(".py"):
        return [_of_file(Path(id), problem, db, say)]
    if problem is not None:
        raise InputError("--problem belongs to a kernel file: agent export FILE.py --problem P")
    with open_store(db, readonly=True) as store:
        say("reading the kernels and their contracts")
        kernels = packaged_samples(store, samples_of(store, id, run))
        if not kernels:
            raise InputError(
                f"no correct kernel in {store.where}: agent inspect lists what is there"
            )
        return kernels


def _of_file(
    path: Path, problem: str | None, db: str | None, say: Callable[[str], None]
) -> PackagedKernel:
    from kernelwright.agent.exporting.packaged_kernel import database_of, packaged_file
    from kernelwright.agent.runtime.databases import open_store

    if not path.is_file():
        raise InputError(f"there is no file {path}")
    if problem is not None:
        return _judged_now(path, problem, say)
    database = db or database_of(path)
    if database is None:
        raise InputError(f"{path} names no verdict: name its problem with --problem, to judge it")
    with open_store(database, readonly=True) as store:
        say("reading the kernel and its contract")
        return packaged_file(store, path)


def _judged_now(path: Path, problem: str, say: Callable[[str], None]) -> PackagedKernel:
    """Judges a file, and returns the file with its verdict. Raises InputError for an incorrect
    kernel.
    """
    from kernelwright.agent.candidates.candidate_files import read_candidate
    from kernelwright.agent.command_line.problems import find_named
    from kernelwright.agent.exporting.packaged_kernel import package_kernel
    from kernelwright.agent.runtime.arguments import choose_device
    from kernelwright.tools.evaluation.pipeline import Evaluator, Options

    source = read_candidate(path)
    chosen = find_named(problem)
    say("judging the kernel")
    with Evaluator(device=choose_device("auto"), workers=1) as judge:
        report = judge.evaluate(chosen, source, Options())
    if not report.correct:
        raise InputError(f"{path} is not packaged: {report.explanation}")
    say("reading its contract")
    return package_kernel(chosen, source, report, "your file")
