"""GPUs of this machine as described by the driver, NVML and nvidia-smi.

Unknown values are None; nothing is guessed.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from kernelwright.tools.hardware.peaks import peak_of
from kernelwright.tools.report import Clocks, Number, Value

DRIVER_SECONDS = 20.0
"""Time limit of the driver's answer: a first cuInit without persistence mode takes several
seconds.
"""

THROTTLE_REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake",
    0x100: "display_clocks",
}
"""Bits of nvmlClocksThrottleReasons (nvml.h)."""

_FIELDS = {
    "uuid": "uuid",
    "name": "name",
    "driver": "driver_version",
    "memory_mib": "memory.total",
    "capability": "compute_cap",
    "sm_mhz": "clocks.sm",
    "memory_mhz": "clocks.mem",
    "max_sm_mhz": "clocks.max.sm",
    "max_memory_mhz": "clocks.max.mem",
    "temperature": "temperature.gpu",
    "power_watts": "power.draw",
    "throttle": "clocks_throttle_reasons.active",
    "busy_percent": "utilization.gpu",
}
"""Our names of sensors by nvidia-smi's."""


_DEVICES = ("/dev/nvidiactl", "/dev/nvhost-ctrl", "/dev/dxg")
"""Device files; CUDA needs at least one of them (on a server, a Jetson, or WSL 2)."""


class Gpu(Value):
    """Properties of a GPU."""

    index: int
    """The index of torch's `cuda:N`, in CUDA's order and with CUDA_VISIBLE_DEVICES applied."""
    name: str
    uuid: str
    capability: tuple[int, int] | None = None
    multiprocessors: int | None = None
    memory_bytes: int | None = None
    l2_bytes: int | None = None
    shared_per_multiprocessor: int | None = None
    shared_per_block: int | None = None
    """The most a block may ask for (opt-in)."""
    registers_per_multiprocessor: int | None = None
    threads_per_multiprocessor: int | None = None
    blocks_per_multiprocessor: int | None = None
    max_sm_mhz: int | None = None
    max_memory_mhz: int | None = None
    bus_bits: int | None = None
    bytes_per_second: Number | None = None
    """Peak memory bandwidth: memory clock times bus width times two if the driver reports both,
    else the published value.
    """
    rates: dict[str, Number] = {}
    """Published dense operations per second by format; empty for a GPU which is not tabulated."""
    rates_source: str = ""
    clocks: Clocks | None = None
    """The clocks at the time of reading."""

    @property
    def target(self) -> str:
        """Returns the name of the target, such as sm_90; empty if the capability is unknown."""
        return f"sm_{self.capability[0]}{self.capability[1]}" if self.capability else ""


class Driver(Value):
    """NVIDIA driver and its GPUs; no version and no GPU without a driver."""

    version: str | None = None
    cuda: str | None = None
    gpus: tuple[Gpu, ...] = ()


def read_driver() -> Driver:
    """Asks CUDA (in a process of its own), then NVML, then nvidia-smi.

    A machine without a GPU gives an empty Driver in milliseconds.
    """
    devices = _cuda_devices()
    version, cuda, sensors = _read_nvml()
    if not sensors:
        version, sensors = _read_smi()
    if not devices:
        devices = [{"index": i, **_fixed_fields(s)} for i, s in enumerate(sensors.values())]
    return Driver(
        version=version, cuda=cuda, gpus=tuple(_gpu(d, sensors.get(d["uuid"], {})) for d in devices)
    )


def read_clocks(uuid: str) -> Clocks | None:
    """Returns current clocks, temperature, power and throttle reasons of a GPU; None if neither
    NVML nor nvidia-smi answers.
    """
    sensors = read_sensors()
    return _clocks(sensors[uuid]) if uuid in sensors else None


def read_sensors() -> dict[str, dict[str, Any]]:
    """Reads the sensors of every GPU of the machine, by UUID; empty if neither NVML nor
    nvidia-smi answers. Includes GPUs hidden by CUDA_VISIBLE_DEVICES.
    """
    return _read_nvml()[2] or _read_smi()[1]


def throttle_reasons(bits: int) -> tuple[str, ...]:
    """Names the reasons whose bits are set in NVML's mask of throttle reasons."""
    return tuple(name for bit, name in THROTTLE_REASONS.items() if bits & bit)


def _cuda_devices() -> list[dict[str, Any]]:
    if not any(os.path.exists(device) for device in _DEVICES):
        return []
    with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):
        command = [sys.executable, "-m", "kernelwright.tools.hardware.cuda_attributes"]
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=DRIVER_SECONDS, check=True
        )
        return json.loads(answer.stdout)
    return []


def _read_nvml() -> tuple[str | None, str | None, dict[str, dict[str, Any]]]:
    """Returns driver version, CUDA version, and NVML's values for each GPU by UUID."""
    try:
        import pynvml
    except ImportError:
        return None, None, {}
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None, None, {}
    try:
        cuda = pynvml.nvmlSystemGetCudaDriverVersion_v2()
        handles = (pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount()))
        sensors = [_read_handle(pynvml, handle) for handle in handles]
        version = _as_text(pynvml.nvmlSystemGetDriverVersion())
        return version, f"{cuda // 1000}.{cuda % 1000 // 10}", {s["uuid"]: s for s in sensors}
    except pynvml.NVMLError:
        return None, None, {}
    finally:
        pynvml.nvmlShutdown()


_highest_clocks: dict[Any, tuple[Any, ...]] = {}
"""Maximum clocks in MHz of multiprocessors and memory, by UUID."""


def _read_handle(nvml: ModuleType, handle: object) -> dict[str, Any]:
    def ask(question: str, *args: Any) -> Any:
        with contextlib.suppress(nvml.NVMLError, AttributeError):
            return getattr(nvml, question)(handle, *args)
        return None

    uuid = _as_text(ask("nvmlDeviceGetUUID"))
    if uuid not in _highest_clocks:  # each question takes the driver milliseconds
        questions = (nvml.NVML_CLOCK_SM, nvml.NVML_CLOCK_MEM)
        _highest_clocks[uuid] = tuple(
            ask("nvmlDeviceGetMaxClockInfo", clock_type) for clock_type in questions
        )
    busy = ask("nvmlDeviceGetUtilizationRates")
    memory = ask("nvmlDeviceGetMemoryInfo")
    power = ask("nvmlDeviceGetPowerUsage")
    return {
        "uuid": uuid,
        "name": _as_text(ask("nvmlDeviceGetName")),
        "memory_bytes": memory.total if memory else None,
        "capability": ask("nvmlDeviceGetCudaComputeCapability"),
        "bus_bits": ask("nvmlDeviceGetMemoryBusWidth"),
        "sm_mhz": ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
        "memory_mhz": ask("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
        "max_sm_mhz": _highest_clocks[uuid][0],
        "max_memory_mhz": _highest_clocks[uuid][1],
        "temperature": ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
        "power_watts": power / 1000 if power is not None else None,
        "throttle": ask("nvmlDeviceGetCurrentClocksThrottleReasons"),
        "busy_percent": busy.gpu if busy else None,
    }


def _read_smi() -> tuple[str | None, dict[str, dict[str, Any]]]:
    """Returns the driver version, and nvidia-smi's values for each GPU by UUID; empty if
    nvidia-smi is missing or fails.
    """
    command = [
        "nvidia-smi",
        f"--query-gpu={','.join(_FIELDS.values())}",
        "--format=csv,noheader,nounits",
    ]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=DRIVER_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None, {}
    sensors = list(_parse_smi(answer.stdout))
    return (sensors[0]["driver"] if sensors else None), {s["uuid"]: s for s in sensors}


def _parse_smi(text: str) -> Iterator[dict[str, Any]]:
    for row in csv.reader(text.splitlines(), skipinitialspace=True):
        if len(row) != len(_FIELDS):
            continue
        raw = dict(zip(_FIELDS, row, strict=True))
        fields: dict[str, Any] = {key: _as_number(value) for key, value in raw.items()}
        fields |= {key: raw[key].strip() for key in ("uuid", "name", "driver")}
        major, _, minor = raw["capability"].partition(".")
        fields["capability"] = (
            (int(major), int(minor)) if major.isdigit() and minor.isdigit() else None
        )
        fields["memory_bytes"] = (
            int(fields["memory_mib"] * 2**20) if fields["memory_mib"] is not None else None
        )
        fields["throttle"] = int(raw["throttle"], 16) if raw["throttle"].startswith("0x") else None
        yield fields


def _fixed_fields(sensors: dict[str, Any]) -> dict[str, Any]:
    return {key: sensors.get(key) for key in ("uuid", "name", "memory_bytes", "capability")}


def _gpu(device: dict[str, Any], sensors: dict[str, Any]) -> Gpu:
    peak = peak_of(device["name"])
    memory_mhz = sensors.get("max_memory_mhz") or _mhz(device.get("memory_clock_khz"))
    bus_bits = device.get("bus_bits") or sensors.get("bus_bits")
    measured = memory_mhz * 1e6 * 2 * bus_bits / 8 if memory_mhz and bus_bits else None
    peaks: dict[str, Any] = {
        key: device[key] for key in Gpu.model_fields if device.get(key) is not None
    }
    capability = device.get("capability") or _capability_pair(
        device.get("capability_major"), device.get("capability_minor")
    )
    return Gpu(
        **{key: value for key, value in peaks.items() if key not in ("capability", "bus_bits")},
        capability=capability,
        max_sm_mhz=_int_or_none(sensors.get("max_sm_mhz")) or _mhz(device.get("clock_khz")),
        max_memory_mhz=_int_or_none(memory_mhz),
        bus_bits=bus_bits,
        bytes_per_second=measured or (peak.bytes_per_second if peak else None),
        rates=peak.rates if peak else {},
        rates_source=peak.source if peak else "",
        clocks=_clocks(sensors) if sensors else None,
    )


def _clocks(sensors: dict[str, Any]) -> Clocks:
    return Clocks(
        sm_mhz=_int_or_none(sensors.get("sm_mhz")),
        memory_mhz=_int_or_none(sensors.get("memory_mhz")),
        temperature=_int_or_none(sensors.get("temperature")),
        power_watts=sensors.get("power_watts"),
        throttle=throttle_reasons(sensors.get("throttle") or 0),
    )


def _capability_pair(major: int | None, minor: int | None) -> tuple[int, int] | None:
    return None if major is None or minor is None else (major, minor)


def _mhz(khz: int | None) -> int | None:
    return khz // 1000 if khz else None


def _int_or_none(value: float | None) -> int | None:
    return None if value is None else int(value)


def _as_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _as_text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")
