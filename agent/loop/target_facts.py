"""Describes the target GPU to a policy, from the device if there is a GPU, else from the table of
targets.
"""

from __future__ import annotations

from kernelwright.tools.hardware.peaks import peak_of, peak_of_target
from kernelwright.tools.hardware.targets import TARGETS


def describe_target(target: str, device: str) -> str:
    """Describes the target in one line."""
    specification = TARGETS[target]
    name, multiprocessors, memory = _read(device) or (
        specification.title,
        specification.multiprocessors,
        specification.memory,
    )
    registers = specification.registers
    shared_kib = specification.shared_per_multiprocessor // 1024
    facts = [
        f"{name} ({target})",
        f"{multiprocessors} multiprocessors",
        f"{registers:,} registers and {shared_kib} KiB of shared memory each",
        f"at most {specification.shared_per_block // 1024} KiB of shared memory a block",
        f"warps of {specification.warp_size}",
        f"{memory / 2**30:.0f} GiB of memory",
    ]
    if peak := peak_of(name) or peak_of_target(target):
        facts.append(f"{peak.bytes_per_second / 1e12:.2f} TB/s")
    return ", ".join(facts) + "."


def _read(device: str) -> tuple[str, int, int] | None:
    """Returns name, multiprocessors and bytes of memory of the device; None if the device is not
    a readable GPU.
    """
    if not device.startswith("cuda"):
        return None
    from kernelwright.tools.hardware.gpus import read_driver

    index = int(device.partition(":")[2] or 0)
    gpu = next((gpu for gpu in read_driver().gpus if gpu.index == index), None)
    if gpu is None or gpu.multiprocessors is None or gpu.memory_bytes is None:
        return None
    return gpu.name, gpu.multiprocessors, gpu.memory_bytes
