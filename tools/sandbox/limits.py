"""Resource limits of a candidate, and the kinds of its processes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ProcessKind(StrEnum):
    """The purpose of a process: its libraries are loaded and its walls are set accordingly."""

    COMPILE = "compile"
    INTERPRET = "interpret"
    CUDA = "cuda"


@dataclass(frozen=True)
class Limits:
    """Resource limits of a candidate."""

    memory: int = 8 << 30
    """Bytes of address space beyond the zygote's (CPU kinds), or of private data (CUDA); also the
    limit for all processes together.
    """
    processes: int = 400
    """Processes and threads at once."""
    file_size: int = 256 << 20
    """Maximum size of a file, in bytes."""
    disk: int = 512 << 20
    """Bytes of all files in its folder."""
    files: int = 20_000
    """Files and folders in its folder."""
    open_files: int = 1024
    cpu_seconds: int = 900
    output: int = 64 << 10
    """Maximum number of kept bytes of stdout and stderr."""
