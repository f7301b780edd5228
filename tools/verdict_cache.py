"""Verdicts that are known already: by candidate, problem, evaluator, device, versions and rules.

Never across devices.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from functools import cache
from pathlib import Path

from pydantic import ValidationError

from kernelwright.tools.report import Environment, Fault, Report

UNCACHED_FAULTS = frozenset({Fault.TIMEOUT, Fault.MEMORY, Fault.CRASH})
"""Faults that a loaded machine may cause: their verdicts are not kept, and the candidate is judged again."""


@cache
def evaluator_version() -> str:
    """Returns SHA-256 over the source of tools/, 12 hex digits: any change of the judge invalidates
    cached verdicts."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


class VerdictCache:
    """Cache of reports in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "verdicts"

    def key(self, candidate: str, problem: str, environment: Environment, rules: str) -> str:
        """SHA-256 in hex over both texts, the environment without its host name, and the rules."""
        parts = (candidate, problem, environment.model_dump_json(exclude={"host"}), rules)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def find(self, key: str) -> Report | None:
        """Returns the report with `cached` set; None if not cached, or if the file is no readable
        report.
        """
        path = self._path(key)
        try:
            return Report.model_validate_json(path.read_bytes()).with_(cached=True)
        except (FileNotFoundError, ValidationError, NotADirectoryError):
            return None

    def keep(self, key: str, report: Report) -> None:
        """Writes the verdict under a temporary name and renames it: a reader never sees a partial
        file. Raises OSError on a full disk.
        """
        if report.failure is not None and report.failure.fault in UNCACHED_FAULTS:
            return
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(handle, "w") as file:
                file.write(report.model_dump_json())
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}.json"
