"""Control groups: a group for each candidate's process, if this host permits, with a bound on
memory of every kind (shared, in files of tmpfs, swap).

Folders are made only below the root seen by this process, below a group delegated by systemd
(`Delegate=yes`), or, as an ordinary user, below a group owned by the user. Groups made by others
for this process stay unchanged. Supports both versions of the interface
(Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst of Linux).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

GROUP_PREFIX = "kernelwright-"
WANTED_CONTROLLERS = ("memory", "pids")
REMOVING_SECONDS = 2.0
_DELEGATED = ("trusted.delegate", "user.delegate")
_counter = itertools.count()


@dataclass(frozen=True)
class Hierarchy:
    """Folder for new groups, with the controllers effective there."""

    folder: Path
    controllers: frozenset[str]
    version: int

    def settings(self, memory: int, processes: int) -> dict[str, int]:
        """Returns the contents of each file of a new group; memory in bytes."""
        names = {
            ("memory", 2): {"memory.max": memory, "memory.swap.max": 0, "memory.oom.group": 1},
            ("memory", 1): {"memory.limit_in_bytes": memory, "memory.memsw.limit_in_bytes": memory},
            ("pids", 2): {"pids.max": processes},
            ("pids", 1): {"pids.max": processes},
        }
        return {
            file: value
            for name in sorted(self.controllers)
            for file, value in names[name, self.version].items()
        }


class Group:
    """Folders of a candidate's process, in each hierarchy."""

    def __init__(self, folders: list[Path]) -> None:
        self.folders = folders

    def memory_ran_out(self) -> bool:
        """Whether the kernel ended a process of this group for want of memory."""
        for folder, file in itertools.product(
            self.folders, ("memory.events", "memory.oom_control")
        ):
            with contextlib.suppress(OSError):
                for line in (folder / file).read_text().splitlines():
                    name, _, count = line.partition(" ")
                    if name == "oom_kill" and count.strip() != "0":
                        return True
        return False

    def remove(self) -> None:
        """Removes the group once its processes are dead; the kernel takes a moment to let go of them."""
        deadline = time.monotonic() + REMOVING_SECONDS
        for folder in self.folders:
            while folder.exists() and time.monotonic() < deadline:
                with contextlib.suppress(OSError):
                    folder.rmdir()
                    break
                time.sleep(0.005)


class Groups:
    """Hierarchies in which this process may make groups. `missing` holds the reason if there are
    none.
    """

    def __init__(self, hierarchies: list[Hierarchy], missing: str = "") -> None:
        self.hierarchies = hierarchies
        self.missing = missing

    @property
    def bound_memory(self) -> bool:
        """Whether a group made here can limit memory."""
        return any("memory" in hierarchy.controllers for hierarchy in self.hierarchies)

    def create(self, memory: int, processes: int) -> Group:
        """Makes a new group in every hierarchy.

        Skips files which this kernel lacks. Raises OSError if a folder cannot be made.
        """
        group = Group([])
        name = f"{GROUP_PREFIX}{os.getpid()}-{next(_counter)}"
        try:
            for hierarchy in self.hierarchies:
                folder = hierarchy.folder / name
                folder.mkdir()
                group.folders.append(folder)
                for file, value in hierarchy.settings(memory, processes).items():
                    with contextlib.suppress(FileNotFoundError, PermissionError):
                        _write(folder / file, str(value))
        except BaseException:
            group.remove()
            raise
        return group

    def sweep(self) -> None:
        """Removes empty groups of dead owners."""
        for hierarchy in self.hierarchies:
            for folder in hierarchy.folder.glob(f"{GROUP_PREFIX}*-*"):
                owner = folder.name.removeprefix(GROUP_PREFIX).partition("-")[0]
                if owner.isdigit() and not Path("/proc", owner).exists():
                    with contextlib.suppress(OSError):
                        folder.rmdir()


def find_groups(proc: Path = Path("/proc/self")) -> Groups:
    """The hierarchies in which this process may make groups."""
    hierarchies: list[Hierarchy] = []
    reasons: list[str] = []
    try:
        for version, controllers, folder, path in _own_groups(proc):
            hierarchies += _hierarchy(version, controllers, folder, path, reasons)
    except (OSError, ValueError) as error:
        reasons.append(str(error))
    if not any("memory" in hierarchy.controllers for hierarchy in hierarchies):
        return Groups(
            hierarchies,
            "; ".join(dict.fromkeys(reasons)) or "no memory controller can be used here",
        )
    return Groups(hierarchies)


def _hierarchy(
    version: int, controllers: frozenset[str], folder: Path, path: str, reasons: list[str]
) -> list[Hierarchy]:
    """The hierarchy, or none and the reason among the `reasons`."""
    if not _is_ours(folder, path):
        reasons.append(f"the group {path} of this process is not delegated to it")
        return []
    try:
        usable = _usable(version, controllers, folder)
    except OSError as error:
        reasons.append(f"no group can be made below {path}: {error.strerror}")
        return []
    return [Hierarchy(folder, usable, version)] if usable else []


def enter_groups(folders: list[str]) -> None:
    """Moves the calling process into the groups. Raises OSError."""
    for folder in folders:
        _write(Path(folder, "cgroup.procs"), "0")


def _own_groups(proc: Path) -> Iterator[tuple[int, frozenset[str], Path, str]]:
    """Yields (version, controllers, folder, path in the kernel's naming) of each relevant
    hierarchy of this process.
    """
    mounts = list(_mounts(proc))
    for line in (proc / "cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        controllers_wanted = frozenset(names.split(",")) & frozenset(WANTED_CONTROLLERS)
        for kind, options, root, point in mounts:
            if (not names and kind == "cgroup2") or (
                controllers_wanted and kind == "cgroup" and controllers_wanted <= options
            ):
                inside = os.path.relpath(path, root) if path.startswith(root) else path.lstrip("/")
                yield (1 if names else 2), controllers_wanted, Path(point, inside), path
                break


def _mounts(proc: Path) -> Iterator[tuple[str, frozenset[str], str, str]]:
    """Yields (file system, its options, root within it, mount point), from proc_pid_mountinfo(5)."""
    for line in (proc / "mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        fields = before.split()
        fields_after = after.split()
        yield fields_after[0], frozenset(fields_after[2].split(",")), fields[3], fields[4]


def _is_ours(folder: Path, path: str) -> bool:
    if path == "/":
        return True
    if os.geteuid() != 0 and folder.stat().st_uid == os.geteuid():
        return True
    names = [part for part in path.split("/") if part]
    ancestors = [folder, *folder.parents][: len(names)]
    return any(_attribute(ancestor, name) == b"1" for ancestor in ancestors for name in _DELEGATED)


def _attribute(folder: Path, name: str) -> bytes:
    try:
        return os.getxattr(folder, name)
    except OSError:
        return b""


def _usable(version: int, controllers: frozenset[str], folder: Path) -> frozenset[str]:
    """Returns the controllers effective in a group made here; enables them first in version 2.

    Raises OSError if no folder may be made.
    """
    if version == 2:
        present = frozenset((folder / "cgroup.controllers").read_text().split()) & frozenset(
            WANTED_CONTROLLERS
        )
        for name in present - frozenset((folder / "cgroup.subtree_control").read_text().split()):
            with contextlib.suppress(OSError):
                _write(folder / "cgroup.subtree_control", f"+{name}")
        controllers = present & frozenset((folder / "cgroup.subtree_control").read_text().split())
    if not controllers:
        return controllers
    trial = folder / f"{GROUP_PREFIX}{os.getpid()}-{next(_counter)}"
    trial.mkdir()
    trial.rmdir()
    return controllers


def _write(path: Path, text: str) -> None:
    """Writes to an existing file: the files of a group are created by the kernel."""
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
