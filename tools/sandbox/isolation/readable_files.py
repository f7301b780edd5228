"""Lists the files accessible to a candidate, as Landlock rules: it reads Python, its packages,
the system's libraries and CUDA, and writes its own folder.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from pathlib import Path

import kernelwright
from kernelwright.tools.sandbox.isolation import system_call_bindings as kernel
from kernelwright.tools.sandbox.limits import ProcessKind

SYSTEM_FOLDERS = (
    "/usr", "/lib", "/lib64", "/bin", "/sbin", "/opt", "/sys", "/etc/ld.so.cache", "/etc/alternatives",
    "/etc/nsswitch.conf", "/etc/localtime",
    "/etc/vulkan", "/etc/OpenCL", "/etc/nvidia",
)  # fmt: skip


def readable_paths() -> list[str]:
    """Returns Python, its packages, system libraries and CUDA; of this package only the modules
    imported in a sandbox: `tools` and the modules below.
    """
    python = {
        sys.base_prefix,
        sysconfig.get_path("stdlib"),
        sysconfig.get_path("platstdlib"),
        sys.base_exec_prefix,
    }
    paths = [*SYSTEM_FOLDERS, *(p for p in python if p)]
    ours = Path(kernelwright.__file__).parent
    paths += [str(ours / "tools"), *map(str, sorted(ours.glob("*.py")))]
    for folder in _package_folders(ours):
        if (folder / ours.name).exists():
            paths += [str(folder / name) for name in os.listdir(folder) if name != ours.name]
        else:
            paths.append(str(folder))
    if sys.prefix != sys.base_prefix:
        paths += [str(Path(sys.prefix, name)) for name in ("bin", "include", "pyvenv.cfg")]
    return paths


def _package_folders(ours: Path) -> list[Path]:
    """Returns the folders from which Python imports, without the checkout which contains this
    package.
    """
    checkout = (ours / "tools").resolve().parent
    folders = {Path(p) for p in (*site.getsitepackages(), *sys.path) if p and Path(p).is_dir()}
    return [f for f in folders if f.resolve() != checkout]


def open_common_paths(kind: ProcessKind) -> list[tuple[int, int]]:
    """Opens the paths accessible to every candidate of this kind; forks inherit the descriptors."""
    devices = ["/dev/null", "/dev/zero", "/dev/urandom", "/dev/random"]
    if kind is ProcessKind.CUDA:
        devices += ["/dev/nvidia-caps", *(str(p) for p in Path("/dev").glob("nvidia*"))]
    readable = ((path, kernel.READ_RIGHTS) for path in readable_paths())
    return kernel.open_landlock([*readable, *((path, kernel.DEVICE_RIGHTS) for path in devices)])


def make_ruleset(common: list[tuple[int, int]], scratch: str, kind: ProcessKind) -> int:
    """Makes a Landlock ruleset of the common paths and the candidate's own: its folder, and its
    mounted /proc and /dev/shm. Raises OSError.
    """
    allowed_paths = [(scratch, kernel.ALL_RIGHTS), ("/proc", kernel.READ_RIGHTS)]
    if kind is ProcessKind.CUDA:
        # The driver writes under /proc (names of its threads); what rules the kernel there is mounted read-only.
        allowed_paths = [
            (scratch, kernel.ALL_RIGHTS),
            ("/proc", kernel.DEVICE_RIGHTS),
            ("/dev/shm", kernel.DEVICE_RIGHTS),
        ]
    opened = kernel.open_landlock(allowed_paths)
    try:
        return kernel.make_ruleset([*common, *opened])
    finally:
        for descriptor, _ in opened:
            os.close(descriptor)


def close_files(scratch: str, kind: ProcessKind) -> None:
    """Applies a complete Landlock ruleset to the calling process. Raises OSError if the kernel
    lacks Landlock.
    """
    common = open_common_paths(kind)
    try:
        kernel.enter_ruleset(make_ruleset(common, scratch, kind))
    finally:
        for descriptor, _ in common:
            os.close(descriptor)
