"""What one candidate may take, and what a process is for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What a process is for; its libraries are loaded and its walls are set accordingly."""

    COMPILE = "compile"
    INTERPRET = "interpret"
    CUDA = "cuda"


@dataclass(frozen=True)
class Limits:
    """What one candidate may take."""

    memory: int = 8 << 30
    """Bytes of address space beyond what the zygote had (CPU kinds), or of private data (CUDA); and bytes that all
    its processes hold together.
    """
    processes: int = 400
    """Processes and threads at once."""
    file_size: int = 256 << 20
    """Bytes."""
    disk: int = 512 << 20
    """Bytes of all files in its folder."""
    files: int = 20_000
    """Files and folders in its folder."""
    open_files: int = 1024
    cpu_seconds: int = 900
    output: int = 64 << 10
    """Bytes of stdout and stderr that are kept."""
