"""Finds the problems of this machine that matter for Kernelwright, and says what to do about each."""

from __future__ import annotations

from enum import StrEnum

from kernelwright.tools.hardware.machine_info import Machine
from kernelwright.tools.report import Value

ENOUGH_DISK_BYTES = 2 * 2**30
"""Bytes. A batch with its Triton caches takes some hundred MiB; less than this is worth saying before it starts."""
ENOUGH_MEMORY_BYTES = 6 * 2**30
SUPPORTED_TRITON = ((3, 6), (3, 10))
SUPPORTED_TORCH = ((2, 11), (2, 16))
"""From the first, up to and without the second."""


class Severity(StrEnum):
    """The severity of a problem of this machine."""

    ERROR = "error"
    """Nothing works until it is mended."""
    WARNING = "warning"
    """Something that was asked for is missing or weaker."""
    NOTE = "note"
    """Fine, but worth knowing."""


class MachineTrouble(Value):
    """One thing that is wrong with this machine, and what to do about it."""

    severity: Severity
    what: str
    fix: str
    """One line of advice that can be followed."""


def diagnose(machine: Machine) -> tuple[MachineTrouble, ...]:
    """Returns every problem, the most severe first."""
    found = [
        *_libraries(machine),
        *_gpu(machine),
        *_counters(machine),
        *_targets(machine),
        *_isolation(machine),
        *_room(machine),
    ]
    order = list(Severity)
    return tuple(sorted(found, key=lambda trouble: order.index(trouble.severity)))


def _libraries(machine: Machine) -> list[MachineTrouble]:
    found = []
    for name, (lowest, beyond) in {"torch": SUPPORTED_TORCH, "triton": SUPPORTED_TRITON}.items():
        version = machine.versions.get(name)
        span = f"{name}>={_dotted(lowest)},<{_dotted(beyond)}"
        if version is None:
            found.append(_error(f"{name} is not installed", f"pip install '{span}'"))
        elif not lowest <= _pair(version) < beyond:
            fix = f"pip install '{span}'"
            found.append(_warning(f"{name} {version} is outside the range that is tested", fix))
    return found


def _gpu(machine: Machine) -> list[MachineTrouble]:
    torch = machine.versions.get("torch") or ""
    if not machine.gpus:
        if machine.driver is not None:
            return [
                _warning(
                    "the NVIDIA driver is there, but CUDA finds no GPU",
                    "check CUDA_VISIBLE_DEVICES and nvidia-smi",
                )
            ]
        return [
            _note(
                "no GPU: candidates are compiled and interpreted on the CPU, and not timed",
                "nothing to do; use a GPU machine for speed",
            )
        ]
    found = []
    if torch.endswith("+cpu"):
        fix = "install a torch built with CUDA (see pytorch.org, Get Started) in place of this one"
        found.append(_warning(f"there is a GPU, but torch {torch} is built without CUDA", fix))
    for gpu in machine.gpus:
        slowed = [
            r
            for r in (gpu.clocks.throttle if gpu.clocks else ())
            if r not in ("gpu_idle", "applications_clocks")
        ]
        if slowed:
            fix = "look at power and cooling (nvidia-smi -q -d PERFORMANCE); timings will scatter"
            found.append(_warning(f"cuda:{gpu.index} is slowed down now: {', '.join(slowed)}", fix))
        if not gpu.rates:
            fix = "speed of light is given for memory only; add its data sheet to tools/hardware/peaks.py"
            found.append(_note(f"peak rates of {gpu.name} are not tabulated", fix))
    if machine.versions.get("nvidia-ml-py") is None:
        found.append(
            _note(
                "nvidia-ml-py is not installed: clocks are read through nvidia-smi, slowly",
                "pip install 'kernelwright[gpu]'",
            )
        )
    return found


def _counters(machine: Machine) -> list[MachineTrouble]:
    if not machine.gpus:
        return []
    if machine.ncu.path is None:
        return [
            _note(
                "ncu is not installed: no hardware counters",
                "install NVIDIA Nsight Compute, or leave --ncu out",
            )
        ]
    if machine.ncu.permitted is False:
        fix = "as root: options nvidia NVreg_RestrictProfilingToAdminUsers=0 in /etc/modprobe.d, then reload the driver"
        return [_note("ncu is there, but the driver lets only administrators read counters", fix)]
    return []


def _targets(machine: Machine) -> list[MachineTrouble]:
    missing = [target for target in machine.targets if not target.available]
    if not missing or machine.versions.get("triton") is None:
        return []
    names = ", ".join(target.name for target in missing)
    return [
        _warning(
            f"cannot compile offline for {names}: {missing[0].reason}",
            f"pip install --force-reinstall 'triton=={machine.versions['triton']}'",
        )
    ]


def _isolation(machine: Machine) -> list[MachineTrouble]:
    weak = [layer for layer in machine.layers if not layer.available]
    return [
        _warning(
            f"isolation layer missing: {layer.name} ({layer.reason})",
            "allow it on this host, or judge only candidates that you trust",
        )
        for layer in weak
    ]


def _room(machine: Machine) -> list[MachineTrouble]:
    found = []
    for disk in machine.disks:
        if not disk.writable:
            found.append(
                _warning(
                    f"{disk.path} cannot be written", "set TMPDIR (or HOME) to a folder that can"
                )
            )
        elif disk.free_bytes < ENOUGH_DISK_BYTES:
            found.append(
                _warning(
                    f"{disk.path} has {disk.free_bytes / 2**30:.1f} GiB free",
                    "make room, or set TMPDIR to a larger disk",
                )
            )
    if machine.memory_bytes is not None and machine.memory_bytes < ENOUGH_MEMORY_BYTES:
        found.append(
            _warning(
                f"{machine.memory_bytes / 2**30:.1f} GiB of memory",
                "judge one candidate at a time; 6 GiB and more is comfortable",
            )
        )
    return found


def _pair(version: str) -> tuple[int, int]:
    """Parses the first two numbers of a version: (2, 13) of "2.13.0+cpu"; (0, 0) where it cannot be read."""
    major, _, rest = version.partition(".")
    minor = rest.split(".")[0].split("+")[0]
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _error(what: str, fix: str) -> MachineTrouble:
    return MachineTrouble(severity=Severity.ERROR, what=what, fix=fix)


def _warning(what: str, fix: str) -> MachineTrouble:
    return MachineTrouble(severity=Severity.WARNING, what=what, fix=fix)


def _note(what: str, fix: str) -> MachineTrouble:
    return MachineTrouble(severity=Severity.NOTE, what=what, fix=fix)
