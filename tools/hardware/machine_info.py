"""Describes this machine: GPUs, driver, clocks, versions, permissions. Imports no torch, and does
not touch CUDA in this process.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import socket
from pathlib import Path

from kernelwright.tools.hardware import gpus
from kernelwright.tools.hardware.gpus import Gpu
from kernelwright.tools.hardware.targets import TARGETS
from kernelwright.tools.report import Environment, InfrastructureError, Value

LIBRARIES = (
    "torch",
    "triton",
    "numpy",
    "transformers",
    "trl",
    "peft",
    "vllm",
    "openai",
    "textual",
    "nvidia-ml-py",
    "pyarrow",
)
"""Distributions whose versions are reported; the first two are needed."""

_NCU_PLACES = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu")
_CAP_SYS_ADMIN = 1 << 21


class Layer(Value):
    """Isolation layer of the sandbox."""

    name: str
    available: bool
    reason: str = ""
    """Reason why the layer is unavailable; empty if available."""


class OfflineTarget(Value):
    """Architecture for which candidates can be compiled here, with or without such a GPU."""

    name: str
    available: bool
    reason: str = ""


class Ncu(Value):
    """State of ncu, NVIDIA's kernel profiler."""

    path: str | None = None
    permitted: bool | None = None
    """Whether this process may read the GPU's counters; None without an NVIDIA driver."""


class Disk(Value):
    """Folder for output, and the free space on its disk."""

    path: str
    free_bytes: int
    writable: bool


class Machine(Value):
    """Facts which affect a verdict's figures."""

    host: str
    system: str
    cpus: int
    memory_bytes: int | None = None
    python: str
    versions: dict[str, str | None]
    """Version of each distribution; None if not installed."""
    gpus: tuple[Gpu, ...] = ()
    driver: str | None = None
    cuda: str | None = None
    """Highest CUDA version supported by the driver."""
    ncu: Ncu = Ncu()
    layers: tuple[Layer, ...] = ()
    targets: tuple[OfflineTarget, ...] = ()
    disks: tuple[Disk, ...] = ()

    @property
    def environment(self) -> Environment:
        """Returns the environment stored in reports, for the first GPU."""
        return Environment(
            python=self.python,
            torch=self.versions.get("torch") or "",
            triton=self.versions.get("triton") or "",
            gpu=self.gpus[0].name if self.gpus else "",
            driver=self.driver or "",
            host=self.host,
        )


def read_machine(scratch: Path | None = None) -> Machine:
    """Reads facts about this machine. `scratch`: the folder in which candidates are built; the
    system's temporary folder and the home folder are always included.
    """
    driver = gpus.read_driver()
    return Machine(
        host=socket.gethostname(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        cpus=len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 1,
        memory_bytes=_memory_bytes(),
        python=platform.python_version(),
        versions={name: version(name) for name in LIBRARIES},
        gpus=driver.gpus,
        driver=driver.version,
        cuda=driver.cuda,
        ncu=read_ncu(has_driver=driver.version is not None),
        layers=isolation_layers(),
        targets=offline_targets(),
        disks=read_disks(scratch),
    )


def version(distribution: str) -> str | None:
    """Returns the installed version from the metadata, without an import; None if not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def offline_targets() -> tuple[OfflineTarget, ...]:
    """Returns the compile targets, each with a reason if this Triton lacks the tools for it."""
    spec = importlib.util.find_spec("triton")
    if spec is None or spec.origin is None:
        return tuple(
            OfflineTarget(name=name, available=False, reason="triton is not installed")
            for name in TARGETS
        )
    backends = Path(spec.origin).parent / "backends"
    return tuple(_target(name, backends) for name in TARGETS)


def _target(name: str, backends: Path) -> OfflineTarget:
    if TARGETS[name].backend == "hip":
        needed = backends / "amd"
    else:
        needed = backends / (
            "nvidia/bin/ptxas-blackwell"
            if TARGETS[name].capability >= (10, 0)
            else "nvidia/bin/ptxas"
        )
    is_present = needed.exists()
    return OfflineTarget(
        name=name,
        available=is_present,
        reason="" if is_present else f"this triton has no {needed.name}",
    )


def read_ncu(has_driver: bool) -> Ncu:
    """Returns the path of ncu, and whether the driver lets this process read counters
    (RmProfilingAdminOnly, CAP_SYS_ADMIN).
    """
    path = shutil.which("ncu") or next(
        (str(p) for pattern in _NCU_PLACES for p in _glob(pattern)), None
    )
    return Ncu(path=path, permitted=_counters_permitted() if has_driver else None)


def _glob(pattern: str) -> list[Path]:
    return sorted(Path("/").glob(pattern.lstrip("/")), reverse=True)


def _counters_permitted() -> bool:
    restricted = "RmProfilingAdminOnly: 1" in _text("/proc/driver/nvidia/params")
    return not restricted or _is_admin()


def _is_admin() -> bool:
    for line in _text("/proc/self/status").splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) & _CAP_SYS_ADMIN)
    return False


def isolation_layers() -> tuple[Layer, ...]:
    """Returns the isolation layers available on this host."""
    from kernelwright.tools.sandbox.isolation.layers import available

    return tuple(
        Layer(name=str(name), available=ok, reason=reason) for name, ok, reason in available()
    )


def read_disks(scratch: Path | None = None) -> tuple[Disk, ...]:
    """Returns the free space for builds, in the temporary folder and at home: an entry per path."""
    import tempfile

    folders = dict.fromkeys(
        str(p) for p in (scratch, Path(tempfile.gettempdir()), Path.home()) if p is not None
    )
    return tuple(_disk(folder) for folder in folders)


def _disk(folder: str) -> Disk:
    path = Path(folder)
    while not path.exists():
        path = path.parent
    return Disk(
        path=folder, free_bytes=shutil.disk_usage(path).free, writable=os.access(path, os.W_OK)
    )


def _memory_bytes() -> int | None:
    for line in _text("/proc/meminfo").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    return None


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def evaluating_environment(device: str) -> tuple[Environment, Gpu | None]:
    """Returns the versions which affect verdicts on `device`, and its GPU (None on a CPU). Raises
    InfrastructureError if the GPU does not exist.
    """
    from kernelwright.tools.verdict_cache import evaluator_version

    base = Environment(
        evaluator=evaluator_version(),
        python=platform.python_version(),
        torch=version("torch") or "",
        triton=version("triton") or "",
        host=platform.node(),
        fp_fusion="1",
    )
    if not device.startswith("cuda"):
        return base, None
    driver = gpus.read_driver()
    index = int(device.partition(":")[2] or 0)
    gpu = next((g for g in driver.gpus if g.index == index), None)
    if gpu is None:
        raise InfrastructureError(f"{device} is not there: use --device cpu, or run `agent doctor`")
    return base.with_(gpu=gpu.name, driver=driver.version or ""), gpu
