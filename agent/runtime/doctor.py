"""Finds the problems of this machine that matter for Kernelwright, and advises on each."""

from __future__ import annotations

from enum import StrEnum

from kernelwright.tools.hardware.machine_info import Machine
from kernelwright.tools.report import Value

ENOUGH_DISK_BYTES = 2 * 2**30
"""Bytes. A batch with its Triton caches takes some hundred MiB; less free space is reported
before it starts.
"""
ENOUGH_MEMORY_BYTES = 6 * 2**30
"""Memory below which `agent doctor` warns, in bytes."""
HARMLESS_THROTTLING = ("gpu_idle", "applications_clocks")
"""NVML's reasons for lower clocks that do not disturb a timing."""
SUPPORTED_TRITON = ((3, 6), (3, 10))
SUPPORTED_TORCH = ((2, 11), (2, 16))
"""Range of tested versions, from the first up to and without the second."""


class Severity(StrEnum):
    """The severity of a problem of this machine."""

    ERROR = "error"
    """Nothing works until the problem is solved."""
    WARNING = "warning"
    """A requested feature is missing or weaker."""
    NOTE = "note"
    """Harmless, but worth knowing."""


class MachineTrouble(Value):
    """A problem of this machine, and advice on its solution."""

    severity: Severity
    what: str
    fix: str
    """One line of advice that can be followed."""


def diagnose(machine: Machine) -> tuple[MachineTrouble, ...]:
    """Returns every problem, the most severe first."""
    troubles = [
        *_libraries(machine),
        *_gpu(machine),
        *_counters(machine),
        *_targets(machine),
        *_isolation(machine),
        *_room(machine),
    ]
    order = list(Severity)
    return tuple(sorted(troubles, key=lambda trouble: order.index(trouble.severity)))


def _libraries(machine: Machine) -> list[MachineTrouble]:
    troubles = []
    for name, (lowest, beyond) in {"torch": SUPPORTED_TORCH, "triton": SUPPORTED_TRITON}.items():
        version = machine.versions.get(name)
        span = f"{name}>={_dotted(lowest)},<{_dotted(beyond)}"
        if version is None:
            troubles.append(_error(f"{name} is not installed", f"pip install '{span}'"))
        elif not lowest <= _pair(version) < beyond:
            fix = f"pip install '{span}'"
            troubles.append(_warning(f"{name} {version} is outside the range that is tested", fix))
    return troubles


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
    troubles = []
    if torch.endswith("+cpu"):
        fix = "install a torch built with CUDA (see pytorch.org, Get Started) in place of this one"
        troubles.append(_warning(f"there is a GPU, but torch {torch} is built without CUDA", fix))
    for gpu in machine.gpus:
        reasons = gpu.clocks.throttle if gpu.clocks else ()
        slowdown_reasons = [reason for reason in reasons if reason not in HARMLESS_THROTTLING]
        if slowdown_reasons:
            fix = "look at power and cooling (nvidia-smi -q -d PERFORMANCE); timings will scatter"
            troubles.append(
                _warning(f"cuda:{gpu.index} is slowed down now: {', '.join(slowdown_reasons)}", fix)
            )
        if not gpu.rates:
            fix = "speed of light is given for memory only; add its data sheet to tools/hardware/peaks.py"
            troubles.append(_note(f"peak rates of {gpu.name} are not tabulated", fix))
    if machine.versions.get("nvidia-ml-py") is None:
        troubles.append(
            _note(
                "nvidia-ml-py is not installed: clocks are read through nvidia-smi, slowly",
                "pip install 'kernelwright[gpu]'",
            )
        )
    return troubles


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
    troubles = []
    for disk in machine.disks:
        if not disk.writable:
            troubles.append(
                _warning(
                    f"{disk.path} cannot be written", "set TMPDIR (or HOME) to a folder that can"
                )
            )
        elif disk.free_bytes < ENOUGH_DISK_BYTES:
            troubles.append(
                _warning(
                    f"{disk.path} has {disk.free_bytes / 2**30:.1f} GiB free",
                    "make room, or set TMPDIR to a larger disk",
                )
            )
    if machine.memory_bytes is not None and machine.memory_bytes < ENOUGH_MEMORY_BYTES:
        troubles.append(
            _warning(
                f"{machine.memory_bytes / 2**30:.1f} GiB of memory",
                "judge one candidate at a time; 6 GiB and more is comfortable",
            )
        )
    return troubles


def _pair(version: str) -> tuple[int, int]:
    """Parses the first two numbers of a version: (2, 13) of "2.13.0+cpu"; (0, 0) if they cannot
    be read.
    """
    major, _, after_major = version.partition(".")
    minor = after_major.split(".")[0].split("+")[0]
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _error(problem: str, fix: str) -> MachineTrouble:
    """Makes an error; `_warning` and `_note` make the milder kinds."""
    return MachineTrouble(severity=Severity.ERROR, what=problem, fix=fix)


def _warning(problem: str, fix: str) -> MachineTrouble:
    return MachineTrouble(severity=Severity.WARNING, what=problem, fix=fix)


def _note(problem: str, fix: str) -> MachineTrouble:
    return MachineTrouble(severity=Severity.NOTE, what=problem, fix=fix)
