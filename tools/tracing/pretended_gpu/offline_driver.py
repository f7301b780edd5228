"""A Triton driver for a pretended GPU: answers like the GPU's, loads and launches nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from kernelwright.tools.hardware.binary import KernelUsage, read_amdgcn, read_cubin
from kernelwright.tools.hardware.targets import Target, occupancy
from kernelwright.tools.tracing.pretended_gpu import private_names as symbols

MAX_GRID_X, MAX_GRID_YZ = 2**31 - 1, 65535
"""Maximum grid; CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
HIP's is larger."""


class LaunchRefused(RuntimeError):
    """Raised for a launch that the driver would refuse."""


class OfflineUtils:
    """Triton's `driver.active.utils`."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def get_device_properties(self, device: int = 0) -> dict[str, int]:
        """Returns the target's limits under the names of Triton's driver. Clocks in kHz, shared
        memory in bytes."""
        t = self._target
        return {
            "max_shared_mem": t.shared_per_block, "max_num_regs": t.registers,
            "multiprocessor_count": t.multiprocessors, "warpSize": t.warp_size,
            "sm_clock_rate": 1_980_000, "mem_clock_rate": 3_201_000, "mem_bus_width": 6144,
            "max_threads_per_sm": t.threads,
        }  # fmt: skip

    def load_binary(self, name: str, kernel: Any, shared: int, device: int) -> tuple[Any, ...]:
        """Returns (module, function, registers, spills in 32-bit words, maximum threads per block),
        like the real driver."""
        usage = read_usage(kernel, name, self._target)
        words = (usage.spills or 0) // 4
        return (
            _LOADED,
            _LOADED,
            usage.registers or 0,
            words,
            max_threads(usage.registers or 0, self._target),
        )

    def unload_module(self, module: object) -> None:
        """Does nothing: nothing was loaded."""


_LOADED = 1
"""A non-null handle."""


def read_usage(kernel: Any, name: str, target: Target) -> KernelUsage:
    """Returns registers, spills and stack; empty for an AMD code object, whose assembly holds them."""
    if target.backend != "cuda":
        return KernelUsage(None, None, None, 0)
    return read_cubin(kernel, name)


def read_compiled(asm: Any, name: str, target: Target) -> KernelUsage:
    """Reads resources of a kernel from the stages of its compilation."""
    return (
        read_cubin(asm["cubin"], name) if target.backend == "cuda" else read_amdgcn(asm["amdgcn"])
    )


def max_threads(registers: int, target: Target) -> int:
    """Returns the threads of the largest block that the registers allow."""
    warps = target.threads_per_block // target.warp_size
    while registers and warps > 1 and not occupancy(registers, 0, warps, target)[0]:
        warps -= 1
    return warps * target.warp_size


class OfflineLauncher:
    """Replaces Triton's launcher: checks what the driver would check, and records the launch."""

    noted: Callable[[Any, tuple[int, int, int], tuple[Any, ...]], None]
    """Callback with metadata, grid and arguments, set before the first launch."""

    def __init__(self, src: Any, metadata: Any) -> None:
        self._metadata = metadata
        self._names = tuple(getattr(src, "signature", {}))

    def __call__(
        self,
        x: object,
        y: object,
        z: object,
        stream: object,
        function: object,
        packed: object,
        launch: object,
        enter: object,
        leave: object,
        *args: Any,
    ) -> None:
        """Records a launch, with the arguments of Triton's launcher. Raises LaunchRefused as a
        driver would refuse."""
        grid = check_grid((x, y, z), self._metadata.name)
        check_arguments(self._names, args, self._metadata.name)
        self._allocate(grid, stream)
        type(self).noted(self._metadata, grid, args)

    def _allocate(self, grid: tuple[int, int, int], stream: object) -> None:
        """Calls the allocator for a kernel with device-side descriptors: without
        `triton.set_allocator` the real launch fails."""
        size = getattr(self._metadata, "global_scratch_size", 0) or 0
        allocator = symbols.find("triton.runtime._allocation", "_allocator")
        if size and allocator is not None:
            total = math.prod(grid) * getattr(self._metadata, "num_ctas", 1) * size
            allocator.get()(total, getattr(self._metadata, "global_scratch_align", 1), stream)


def split_launch(passed: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any, tuple[Any, ...]]:
    """Splits the arguments of Triton's launcher, from 3.6 to 3.9: the grid, the stream, the kernel's own arguments.

    Between the stream and those stand the function, two values of metadata and two hooks.
    """
    return passed[:3], passed[3], passed[9:]


def check_grid(grid: tuple[Any, ...], name: str) -> tuple[int, int, int]:
    """Raises LaunchRefused for a grid that no driver accepts."""
    if not all(isinstance(n, int) for n in grid):
        raise TypeError(f"the grid of {name} is {grid}: it holds integers only")
    x, y, z = (int(n) for n in grid)
    if min(x, y, z) < 0 or x > MAX_GRID_X or max(y, z) > MAX_GRID_YZ:
        raise LaunchRefused(
            f"the grid of {name} is ({x}, {y}, {z}): at most ({MAX_GRID_X}, {MAX_GRID_YZ}, {MAX_GRID_YZ}) can be "
            "launched"
        )
    return x, y, z


def check_arguments(names: tuple[str, ...], args: tuple[Any, ...], kernel: str) -> None:
    """Raises LaunchRefused if a kernel gets a tensor that only a CPU can read."""
    for name, value in zip(names, args, strict=False):
        tensor = getattr(value, "base", value)
        if (
            isinstance(tensor, torch.Tensor)
            and tensor.device.type == "cpu"
            and not tensor.is_pinned()
        ):
            raise LaunchRefused(
                f"argument {name} of {kernel} is a tensor on the CPU: a kernel cannot read it"
            )


class OfflineDriver:
    """Triton's `triton.runtime.driver.active` while a candidate runs."""

    launcher_cls = OfflineLauncher

    def __init__(
        self, target: Target, during_benchmark: Callable[[Callable[[], Any]], None]
    ) -> None:
        self._target = target
        self._during = during_benchmark
        self.utils = OfflineUtils(target)

    def get_current_target(self) -> Any:
        """Returns Triton's GPUTarget of the pretended target."""
        return self._target.gpu_target()

    def get_current_device(self) -> int:
        """Returns 0, the only device."""
        return 0

    def set_current_device(self, device: int) -> None:
        """Does nothing: the only device is always current."""

    def get_current_stream(self, device: int | None = None) -> int:
        """Returns 0, the default stream."""
        return 0

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        """Returns the target's compute capability, (major, minor)."""
        return self._target.capability

    def get_active_torch_device(self) -> torch.device:
        """Returns cuda:0, the pretended device."""
        return torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        """Returns torch.cuda, as replaced by the tracer."""
        return torch.cuda

    def map_python_to_cpp_type(self, name: str) -> str:
        """Returns the name itself: no launcher is compiled."""
        return name

    def get_benchmarker(self) -> Callable[..., list[float]]:
        """Returns the function with which `triton.autotune` times configurations."""
        return self.benchmark

    def benchmark(
        self, call: Callable[[], Any], *args: Any, quantiles: Any = None, **kwargs: Any
    ) -> Any:
        """Runs `call` once to compile its kernels, and measures nothing."""
        self._during(call)
        return [1.0] * len(quantiles) if quantiles else 1.0

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        """Returns a single element: nothing is measured, so no cache has to be flushed."""
        return torch.empty(1)

    def clear_cache(self, cache: Any) -> None:
        """Does nothing: there is no cache."""
