"""Writes the best kernel to a file, with its provenance, its contract and the extent of its
verification in the header.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

from kernelwright.agent.contracts.comments import wrap_comments
from kernelwright.agent.contracts.guarded import GuardedKernel
from kernelwright.agent.loop.attempts import JudgedAttempt
from kernelwright.agent.runtime.output_files import refuse_unwritable_file
from kernelwright.errors import InputError
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Report, ReportOutcome, clean_text

HEADER_MARK = "# Written by kernelwright"


def default_path(problem: Problem) -> Path:
    """Returns the default output file in the current folder, `fused_softmax_triton.py`."""
    name = Path(problem.name).stem if problem.name.endswith(".py") else problem.name
    stem = re.sub(r"\W+", "_", name).strip("_")
    return Path(f"{stem or 'kernel'}_triton.py")


def check_path(path: Path) -> Path:
    """Raises InputError if the file cannot be written, or exists and was not written by this
    program.
    """
    refuse_unwritable_file(path)
    if path.exists():
        text = path.read_text(encoding="utf-8", errors="replace")
        if not text.startswith(HEADER_MARK):
            raise InputError(
                f"{path} exists and was not written by this program: name another file with --out"
            )
    return path


def write_kernel(
    path: Path,
    problem: Problem,
    best: JudgedAttempt,
    database: str,
    version: str,
    kernel: GuardedKernel,
) -> None:
    """Writes a temporary file and renames it, so the output file is never incomplete."""
    assert best.report is not None
    header = [
        f"{HEADER_MARK} {version}, {time.strftime('%Y-%m-%d %H:%M:%S')}.",
        f"# problem    {_line(problem.name)} ({problem.hash[:16]})",
        author_line(best.author),
        f"# candidate  {best.candidate_id}, turn {best.turn + 1}, {best.action} ({best.hash[:16]}), "
        f"in {_line(database)}",
        *verdict_lines(best.report),
        *kernel.lines,
    ]
    temporary_path = path.with_name(f".{path.name}.part")
    temporary_path.write_text(
        wrap_comments(header) + "\n" + kernel.text.strip() + "\n", encoding="utf-8"
    )
    temporary_path.replace(path)


def author_line(author: str) -> str:
    """Returns the comment line with the kernel's author."""
    return f"# written by {_line(author)}"


def verdict_lines(report: Report) -> list[str]:
    """Returns the comment lines with the extent of the verification and the judge's versions."""
    environment = report.environment
    shapes = [f"# shape      {_line(verdict.line)}" for verdict in report.shapes]
    mode = (
        [f"# mode       judged in eval mode: {_line(report.eval_mode)}"] if report.eval_mode else []
    )
    return [
        f"# verified   {_line(verification_line(report))}",
        *shapes,
        *mode,
        f"# judged by  evaluator {environment.evaluator}, torch {environment.torch}, triton {environment.triton}",
    ]


def verification_line(report: Report) -> str:
    """Describes in one line on which device and at which sizes the kernel was verified."""
    if report.shapes and report.correct:
        return f"at each of {len(report.shapes)} shapes; {_verified(report, at_shapes=True)}"
    return _verified(report)


def _verified(report: Report, at_shapes: bool = False) -> str:
    if not report.correct:
        return "not correct" if report.outcome is ReportOutcome.INCORRECT else "not checked"
    if report.judged_on == "cpu":
        sizes = report.interpreted.sizes if report.interpreted else {}
        shown = "" if at_shapes else ", ".join(f"{name} {value}" for name, value in sizes.items())
        targets = ", ".join(compiled.target for compiled in report.compiles if compiled.passed)
        compiled_for = f"compiled for {targets}; " if report.compiles else ""
        return (
            f"{compiled_for}right on a CPU, interpreted, at small sizes{f' ({shown})' if shown else ''}; "
            "not run on a GPU, and nothing is known of its speed"
        )
    return f"right at full sizes on {clean_text(report.judged_on, 80)}{_speed(report)}"


def _speed(report: Report) -> str:
    profile = report.profile
    if profile is None or profile.speedup is None:
        return "; its speed was not measured"
    text = f"; {profile.speedup:.2f}x the speed of eager PyTorch"
    if profile.speedup_low is not None:
        text += f" (at least {profile.speedup_low:.2f}x with 95 % confidence)"
    if profile.speed_of_light is not None:
        text += f", {profile.speed_of_light:.0%} of the speed of light"
    return text


def _line(text: str) -> str:
    return " ".join(clean_text(text, 300).split())
