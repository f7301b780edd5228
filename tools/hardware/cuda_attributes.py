"""Reads device attributes from the CUDA driver in a process of its own: `python -m
kernelwright.tools.hardware.cuda_attributes` writes JSON.

A process which has called cuInit cannot fork children that use CUDA, so that no other process may
ask the driver. No context is created, and torch is not needed.
"""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any

ATTRIBUTES = {
    "multiprocessors": 16,
    "clock_khz": 13,
    "memory_clock_khz": 36,
    "bus_bits": 37,
    "l2_bytes": 38,
    "threads_per_multiprocessor": 39,
    "capability_major": 75,
    "capability_minor": 76,
    "shared_per_multiprocessor": 81,
    "registers_per_multiprocessor": 82,
    "shared_per_block": 97,
    "blocks_per_multiprocessor": 106,
}
"""CUdevice_attribute numbers of cuda.h; 97 is the opt-in limit of a block."""


def read_devices() -> list[dict[str, Any]]:
    """Returns a dict for each device in CUDA's order (torch's `cuda:N`); empty without driver or
    device.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return []
    count = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return []
    return [_read_device(driver, ordinal) for ordinal in range(count.value)]


def _read_device(driver: ctypes.CDLL, ordinal: int) -> dict[str, Any]:
    device = ctypes.c_int()
    memory = ctypes.c_size_t()
    name = ctypes.create_string_buffer(256)
    uuid = (ctypes.c_ubyte * 16)()
    driver.cuDeviceGet(ctypes.byref(device), ordinal)
    driver.cuDeviceGetName(name, 256, device)
    driver.cuDeviceGetUuid(ctypes.byref(uuid), device)
    driver.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    attributes: dict[str, Any] = {
        "index": ordinal,
        "name": name.value.decode("utf-8", "replace"),
        "uuid": _format_uuid(bytes(uuid)),
        "memory_bytes": memory.value,
    }
    value = ctypes.c_int()
    for key, attribute in ATTRIBUTES.items():
        failed = driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device)
        attributes[key] = None if failed else value.value
    return attributes


def _format_uuid(raw: bytes) -> str:
    """Writes a UUID as nvidia-smi does: GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx."""
    text = raw.hex()
    return f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


if __name__ == "__main__":
    sys.stdout.write(json.dumps(read_devices()))
