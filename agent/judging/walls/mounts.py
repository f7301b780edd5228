"""Mounts of a walled judge: covered folders of the server, an own /tmp, everything else read-only.

A cover is an empty file system over a folder; Python's files below the folder are mounted again inside the cover.
Example: with Python in /root/python, covering /root (mode 0700) leaves /root (mode 0755) with the single entry
`python`, within reach of every user.
"""

from __future__ import annotations

import contextlib
import os
import site
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import kernelwright
from kernelwright.agent.judging.walls.bounds import (
    MAX_TEMPORARY_BYTES,
    TEMPORARY_FILES,
    TEMPORARY_SHARE,
    machine_memory,
)
from kernelwright.tools.sandbox.isolation import system_call_bindings as kernel

UNTOUCHED_MOUNTS = ("/proc", "/sys", "/dev")
"""Unchanged mounts: devices, the kernel's own files, and control groups (bounds of candidates)."""


def make_mounts(hidden: Sequence[Path], shared: Sequence[Path], owner: int | None) -> None:
    """Makes the mounts of this process's mount namespace. Raises OSError.

    hidden: files of the server; their folders are covered. shared: files in /tmp, locked by other processes of this
    machine as well. owner: user id of the new /tmp, as seen by this process; None keeps /tmp.
    """
    kernel.make_mounts_private()
    home, needed = Path.home().resolve(), needed_paths()
    shared = [path for path in shared if path.exists()]
    temporary = tempfile.gettempdir()
    os.chdir("/")  # a folder that is covered is still seen by a process that works in it
    if owner is None:
        kernel.bind_mount(temporary, temporary)
    size_bytes = min(MAX_TEMPORARY_BYTES, int(TEMPORARY_SHARE * machine_memory()))
    size = f"size={size_bytes},nr_inodes={TEMPORARY_FILES},mode=0700,uid={owner}"
    if owner is not None:
        _cover(Path(temporary), [*needed, *shared], size)
    for path in dict.fromkeys((home, *map(_path_to_hide, hidden))):
        if path.is_dir():
            _cover(path, needed, "mode=0755")
        elif path.exists():  # a file in a covered folder is hidden already
            kernel.hide(path)
    for mount_point in _mount_points():
        if mount_point not in (temporary, *map(str, shared)):
            # Below a cover there is no way to a mount that was there before.
            with contextlib.suppress(FileNotFoundError):
                kernel.remount_read_only(mount_point)


def needed_paths() -> list[Path]:
    """Returns Python's folders and files for imports, this package included."""
    package = Path(kernelwright.__file__).parent
    paths = [Path(sys.prefix), Path(sys.base_prefix), Path(sys.executable), package]
    paths += [path for path in package.iterdir() if path.is_symlink()]  # a checkout
    # The first entry of sys.path is the folder in which the server was started: Python needs nothing of it.
    paths += [Path(path) for path in (*sys.path[1:], *site.getsitepackages()) if path]
    every_path = {path.resolve() for path in paths} | {path.absolute() for path in paths}
    return sorted(path for path in every_path if path.exists())


def _path_to_hide(file: Path) -> Path:
    """Returns the folder of a file: another file may be renamed to its name. Of /etc and its like the file alone."""
    return file.parent if len(file.parent.parts) > 2 else file


def _cover(folder: Path, needed: Sequence[Path], options: str) -> None:
    """Mounts an empty file system over a folder, with the needed paths below the folder bound
    inside.

    A needed folder, or a folder inside a needed folder, stays unchanged.
    """
    if any(folder.is_relative_to(path) for path in needed):
        return
    inner = [path for path in needed if path.is_relative_to(folder)]
    outermost = [path for path in inner if not any(p in inner for p in path.parents)]
    links = {path: os.readlink(path) for path in outermost if path.is_symlink()}
    # What is covered stays reachable through descriptors that were opened before.
    opened = {
        path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in outermost if path not in links
    }
    kinds = {path: path.is_dir() for path in opened}
    kernel.mount_memory(str(folder), options)
    for path in outermost:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path in links:
            path.symlink_to(links[path])
            continue
        path.mkdir() if kinds[path] else path.touch()
        kernel.bind_mount(f"/proc/self/fd/{opened[path]}", str(path))
        os.close(opened[path])


def _mount_points() -> list[str]:
    """Returns the mount points outside of UNTOUCHED_MOUNTS, from the fields of /proc/self/mountinfo (proc(5))."""
    mount_points = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mount_point = line.split()[4].encode().decode("unicode_escape")
        if not any(Path(mount_point).is_relative_to(path) for path in UNTOUCHED_MOUNTS):
            mount_points.append(mount_point)
    return mount_points
