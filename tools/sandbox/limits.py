"""Limits of one candidate, and the kinds of its processes."""

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
    """Limits of the resources of one candidate."""

    memory: int = 8 << 30
    """Bytes of address space beyond what the zygote had (CPU kinds), or of private data (CUDA); and bytes that all
    its processes hold together.
    """
    processes: int = 400
    """Processes and threads at once."""
    file_size: int = 256 << 20
    """Largest size of one file, in bytes."""
    disk: int = 512 << 20
    """Bytes of all files in its folder."""
    files: int = 20_000
    """Files and folders in its folder."""
    open_files: int = 1024
    cpu_seconds: int = 900
    output: int = 64 << 10
    """Bytes of stdout and stderr that are kept."""
