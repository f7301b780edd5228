"""The best kernel as a file: its provenance and its contract in the header, and how far it was verified."""

from __future__ import annotations

import re
import time
from pathlib import Path

from kernelwright.agent.contracts.comments import wrap_comments
from kernelwright.agent.contracts.guarded import GuardedKernel
from kernelwright.agent.loop.attempts import Attempt
from kernelwright.agent.runtime.output_files import refuse_unwritable_file
from kernelwright.errors import InputError
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Report, ReportOutcome, clean_text

HEADER_MARK = "# Written by kernelwright"


def default_path(problem: Problem) -> Path:
    """`fused_softmax_triton.py`, here."""
    stem = re.sub(
        r"\W+", "_", Path(problem.name).stem if problem.name.endswith(".py") else problem.name
    ).strip("_")
    return Path(f"{stem or 'kernel'}_triton.py")


def check_path(path: Path) -> Path:
    """Raises InputError where the file could not be written, or would take the place of someone's own."""
    refuse_unwritable_file(path)
    if path.exists() and not path.read_text(encoding="utf-8", errors="replace").startswith(
        HEADER_MARK
    ):
        raise InputError(
            f"{path} exists and was not written by this program: name another file with --out"
        )
    return path


def write_kernel(
    path: Path, problem: Problem, best: Attempt, where: str, version: str, kernel: GuardedKernel
) -> None:
    """Writes the kernel under another name and renames it, so that there is never half of it."""
    assert best.report is not None
    header = [
        f"{HEADER_MARK} {version}, {time.strftime('%Y-%m-%d %H:%M:%S')}.",
        f"# problem    {_line(problem.name)} ({problem.hash[:16]})",
        author_line(best.author),
        f"# candidate  {best.candidate_id}, turn {best.turn + 1}, {best.action} ({best.hash[:16]}), in {_line(where)}",
        *verdict_lines(best.report),
        *kernel.lines,
    ]
    beside = path.with_name(f".{path.name}.part")
    beside.write_text(wrap_comments(header) + "\n" + kernel.text.strip() + "\n", encoding="utf-8")
    beside.replace(path)


def author_line(author: str) -> str:
    """Returns the comment that says who wrote the kernel."""
    return f"# written by {_line(author)}"


def verdict_lines(report: Report) -> list[str]:
    """Returns comments that say what was verified, and by which judge."""
    environment = report.environment
    mode = (
        [f"# mode       judged in eval mode: {_line(report.eval_mode)}"] if report.eval_mode else []
    )
    return [
        f"# verified   {_line(verification_line(report))}",
        *mode,
        f"# judged by  evaluator {environment.evaluator}, torch {environment.torch}, triton {environment.triton}",
    ]


def verification_line(report: Report) -> str:
    """One line: what was verified, and how far."""
    if not report.correct:
        return "not correct" if report.outcome is ReportOutcome.INCORRECT else "not checked"
    if report.judged_on == "cpu":
        sizes = report.interpreted.sizes if report.interpreted else {}
        shown = ", ".join(f"{name} {value}" for name, value in sizes.items())
        compiled = (
            f"compiled for {', '.join(c.target for c in report.compiles if c.passed)}; "
            if report.compiles
            else ""
        )
        return (
            f"{compiled}right on a CPU, interpreted, at small sizes{f' ({shown})' if shown else ''}; "
            "not run on a GPU, and nothing is known of its speed"
        )
    return f"right at full sizes on {clean_text(report.judged_on, 80)}{_speed(report)}"


def _speed(report: Report) -> str:
    profile = report.profile
    if profile is None or profile.speedup is None:
        return "; its speed was not measured"
    low = (
        f" (at least {profile.speedup_low:.2f}x with 95 % confidence)"
        if profile.speedup_low is not None
        else ""
    )
    share = (
        f", {profile.speed_of_light:.0%} of the speed of light"
        if profile.speed_of_light is not None
        else ""
    )
    return f"; {profile.speedup:.2f}x the speed of eager PyTorch{low}{share}"


def _line(text: str) -> str:
    return " ".join(clean_text(text, 300).split())
