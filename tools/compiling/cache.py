"""Caches outcomes of compilations by content address: in memory, shared by candidates, sizes and
runs, and optionally in a folder.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Collection
from pathlib import Path

from pydantic import ValidationError

from kernelwright.tools.compiling.compiled import CompileOutcome


class Cache:
    """Least-recently-used cache of compiled kernels, by content address. Thread-safe."""

    def __init__(
        self,
        folder: Path | None = None,
        *,
        most_bytes: int = 256 << 20,
        most_bytes_on_disk: int = 1 << 30,
    ) -> None:
        """Opens the cache, and removes the oldest files if the folder holds more than
        `most_bytes_on_disk`.

        folder: read and written by the trusted side only. most_bytes: maximum size in memory.
        """
        self._folder = folder
        self._most_bytes = most_bytes
        if folder is not None:
            _prune(folder, most_bytes_on_disk)
        self._held: OrderedDict[str, CompileOutcome] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: str, texts: Collection[str] = ()) -> CompileOutcome | None:
        """Returns the outcome with all of these texts; None if not cached."""
        with self._lock:
            cached = self._held.get(key)
            if cached is not None:
                self._held.move_to_end(key)
        if cached is None and (cached := self._read(key)) is not None:
            self._hold(key, cached)
        if cached is None or (cached.fault is None and not set(texts) <= set(cached.texts)):
            return None
        return cached

    def put(self, key: str, outcome: CompileOutcome) -> None:
        """Caches an outcome under its content address, in memory and in the folder."""
        self._hold(key, outcome)
        if self._folder is not None:
            self._write(self._folder / key[:2], key, outcome)

    def _hold(self, key: str, outcome: CompileOutcome) -> None:
        with self._lock:
            if (before := self._held.pop(key, None)) is not None:
                self._bytes -= _size(before)
            self._held[key] = outcome
            self._bytes += _size(outcome)
            self._shrink()

    def _shrink(self) -> None:
        """Down to `most_bytes`: texts, which are many times a binary and seldom wanted again, are forgotten first."""
        for key, outcome in list(self._held.items())[:-1]:
            if self._bytes <= self._most_bytes:
                return
            if outcome.texts:
                self._held[key] = bare = outcome.with_(texts={})
                self._bytes += _size(bare) - _size(outcome)
        while self._bytes > self._most_bytes and len(self._held) > 1:
            self._bytes -= _size(self._held.popitem(last=False)[1])

    def _read(self, key: str) -> CompileOutcome | None:
        if self._folder is None:
            return None
        try:
            return CompileOutcome.model_validate_json(
                (self._folder / key[:2] / f"{key}.json").read_bytes()
            )
        except (OSError, ValidationError):
            return None

    def _write(self, folder: Path, key: str, outcome: CompileOutcome) -> None:
        """Whole or not at all. A full disk costs the file and nothing else."""
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=folder, prefix=".", suffix=".part")
            with os.fdopen(handle, "w") as file:
                file.write(outcome.model_dump_json())
            os.replace(name, folder / f"{key}.json")


def _prune(folder: Path, most_bytes: int) -> None:
    """Removes the oldest files until half of `most_bytes` remains, if the folder holds more than
    `most_bytes`.
    """
    files = []
    for path in folder.glob("*/*"):
        with contextlib.suppress(OSError):  # another process removes it, too
            state = path.stat()
            files.append((state.st_mtime, state.st_size, path))
    total = sum(size for _, size, _ in files)
    if total <= most_bytes:
        return
    for _, size, path in sorted(files):
        if total <= most_bytes // 2:
            return
        with contextlib.suppress(OSError):
            path.unlink()
        total -= size


def _size(outcome: CompileOutcome) -> int:
    return (
        2048 + len(outcome.binary) + len(outcome.reversed) + sum(map(len, outcome.texts.values()))
    )
