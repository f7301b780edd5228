"""The suites that hold the judge to its word: tests/exploits (must be stopped), tests/kernels/good and tests/honest
(must be accepted), tests/dos (must end).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from packaging.version import Version

from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Report

ROOT = Path(__file__).resolve().parents[1]
EXPLOITS = ROOT / "tests" / "exploits"
KERNELS = ROOT / "tests" / "kernels"
HONEST = ROOT / "tests" / "honest"
HOSTILE = ROOT / "tests" / "dos"
CATALOGUE = ROOT / "agent" / "problems" / "catalogue"
FAMILIES = ("answer", "corrupt", "clock", "not_written", "machinery", "hostile")


class Entry(NamedTuple):
    """One file of a suite. `# key: value` lines at its top say what it is."""

    path: Path
    problem: str
    """A name in the catalogue, or a path under the suite's own folder."""
    family: str
    needs: str = "cpu"
    """gpu where it cannot even be tried without one."""
    expect: tuple[str, ...] = ()
    """Faults that a good judge gives. Whichever it is, the report is not correct."""
    naive: str = ""
    """unsafe where it must not run in a process that we care for."""
    own_work: str = "strict"
    either: bool = False
    """Of a probe: whichever verdict it gets is right."""
    on_cpu: str = ""
    """`needs-gpu` where no CPU can interpret it, and the report has to say so."""
    triton: str = "0"
    """The first version of Triton whose own compiler takes it."""

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def source(self) -> str:
        return self.path.read_text(encoding="utf-8")

    def tried_on(self, device: str) -> bool:
        """Whether this machine can try it: its GPU, its Triton."""
        can_compile = Version(version("triton")) >= Version(self.triton)
        return can_compile and (self.needs != "gpu" or device != "cpu")


def header(text: str) -> dict[str, str]:
    """The `# key: value` lines before anything else."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if not (match := re.fullmatch(r"#\s*([\w-]+):\s*(.*?)\s*", line)):
            break
        found[match[1]] = match[2]
    return found


def exploits(names: Iterable[str] = (), device: str = "cpu") -> list[Entry]:
    """Every real cheat, by name; only those named where any are. device: where they are to be judged."""
    wanted = set(names)
    found = [
        _exploit(path, device)
        for path in sorted(EXPLOITS.glob("*.py"))
        if header(path.read_text(encoding="utf-8"))
    ]
    return [e for e in found if not wanted or e.name in wanted]


def _exploit(path: Path, device: str) -> Entry:
    said = header(path.read_text(encoding="utf-8"))
    expect = tuple(word.strip() for word in said["expect"].split(","))
    either = "either" in (said.get("correct"), said.get("on-gpu") if device != "cpu" else "")
    return Entry(
        path,
        said["problem"],
        said["family"],
        said["needs"],
        expect,
        said.get("naive", ""),
        either=either,
    )


def honest(names: Iterable[str] = ()) -> list[Entry]:
    """Every honest kernel; its family is its problem's."""
    wanted = set(names)
    entries = []
    for path in (*sorted((KERNELS / "good").glob("*.py")), *sorted(HONEST.glob("*.py"))):
        said = header(path.read_text(encoding="utf-8"))
        if "problem" in said and (not wanted or path.stem in wanted):
            entries.append(_honest(path, said))
    return entries


def _honest(path: Path, said: dict[str, str]) -> Entry:
    family = "unusual" if path.parent == HONEST else _family(problem_of(said["problem"]))
    on_cpu = said.get("on-cpu", "")
    needs = "cpu" if on_cpu else said.get("needs", "cpu")
    return Entry(
        path, said["problem"], family, needs, own_work=said.get("own-work", "strict"), on_cpu=on_cpu,
        triton=said.get("triton", "0"),
    )  # fmt: skip


def hostile(names: Iterable[str] = ()) -> list[Entry]:
    """Every text that tries to end, hold up or flood the judge; either verdict is right, none is not."""
    wanted = set(names)
    found = []
    for path in sorted(HOSTILE.glob("*.py")):
        said = header(path.read_text(encoding="utf-8"))
        if "problem" in said and (not wanted or path.stem in wanted):
            found.append(
                Entry(path, said["problem"], "hostile", said.get("needs", "cpu"), either=True)
            )
    return found


def problem_of(name: str) -> Problem:
    """From the catalogue, from the kernels' own problems, or a path under tests/exploits."""
    places = (EXPLOITS / name, CATALOGUE / f"{name}.py", KERNELS / "problems" / f"{name}.py")
    path = next((p for p in places if p.suffix == ".py" and p.is_file()), None)
    if path is None:
        raise FileNotFoundError(
            f"no problem named {name} in the catalogue, tests/kernels/problems or tests/exploits"
        )
    return Problem(name=Path(name).stem, source=path.read_text(encoding="utf-8"))


def _family(problem: Problem) -> str:
    match = re.search(r'^FAMILY = "(\w+)"', problem.source, re.MULTILINE)
    return match[1] if match else "other"


def named_fault(report: Report) -> str:
    """The fault in words: `cheat:tamper`, `mismatch`; `correct` where there is none."""
    if report.failure is None:
        return "correct" if report.correct else "not correct, no fault"
    kind = f":{report.failure.cheat}" if report.failure.cheat else ""
    return f"{report.failure.fault}{kind}"
