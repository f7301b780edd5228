"""Launches a trace's compiled kernels on a GPU, and converts driver errors to Failures of the
candidate.

The driver reports an error of a kernel at some later call. From then on every call fails: the CUDA
context is lost, and the process with it.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from typing import Any

from kernelwright.tools.faults import Failed, Failure, Fault, clean_text
from kernelwright.tools.gpu import cuda_kernels
from kernelwright.tools.gpu.cuda_kernels import (
    MAX_GRID,
    MAX_THREADS_PER_BLOCK,
    DriverError,
    LoadedKernel,
    Shape,
)
from kernelwright.tools.gpu.kernel_arguments import (
    ArgumentError,
    Parameters,
    flags_of_descriptor,
)
from kernelwright.tools.tensor_memory import found_no_memory

MAX_WARPS = 32
MAX_CTAS = 16
MAX_SCRATCH_BYTES = 4 << 30
"""Maximum size of a launch's scratch memory, in bytes."""

_CONTEXT_ERRORS = {
    700: (Fault.OUT_OF_BOUNDS, "{} read or wrote an illegal address"),
    717: (Fault.OUT_OF_BOUNDS, "{} used an address of the wrong address space"),
    716: (Fault.OUT_OF_BOUNDS, "{} used a misaligned address"),
    710: (Fault.RUNTIME, "a device-side assertion of {} failed"),
    702: (Fault.TIMEOUT, "the driver ended {}: it ran for too long"),
    714: (Fault.CRASH, "{} overran its stack"),
    715: (Fault.CRASH, "{} ran an illegal instruction"),
    718: (Fault.CRASH, "{} jumped to an illegal address"),
    719: (Fault.CRASH, "{} failed while it ran"),
    721: (Fault.CRASH, "{} was ended: its cluster failed"),
}
"""CUresult -> error of a kernel. The context is lost afterwards."""
_LAUNCH_ERRORS = {
    2: (Fault.MEMORY, "the GPU has no memory left"),
    200: (Fault.COMPILE, "the driver does not take the binary"),
    209: (Fault.COMPILE, "the binary is for another GPU"),
    701: (Fault.RESOURCES, "out of resources: more registers or threads a block than the GPU has"),
    720: (Fault.RESOURCES, "a cooperative launch with more blocks than fit on the GPU at once"),
    912: (Fault.RESOURCES, "a cluster of more blocks than the GPU takes"),
}
"""CUresult -> reason of a refused launch. The context remains usable."""


class Binaries:
    """Binaries of a trace's kernels by their keys, loaded on a device in torch's context."""

    def __init__(self, compiled: Mapping[str, Mapping[str, Any]], device: str = "cuda:0") -> None:
        """Stores the compiled kernels without loading them.

        compiled: kernel key -> `binary` (bytes, or base64 text), `metadata` (the compiler's) and
        `signature` (parameter -> Triton type). Optional: `reversed`, the binary with reversed
        program numbers, and `may_wait`, set if a program may wait for another. A kernel that failed
        to compile has `failure` instead, a Failure as JSON.
        """
        self._compiled = compiled
        self._device = device
        self._failures: dict[str, Failure] = {}
        self._index = int(device.partition(":")[2] or 0)
        self._functions: dict[str, LoadedKernel] = {}
        self._reversed: dict[str, LoadedKernel] = {}
        self._parameters: dict[str, Parameters] = {}
        self.reverse = False
        """Reverses program numbers, in launches whose programs do not wait for others or all run at
        once.

        In other launches a program could wait for one that has not started.
        """
        self._multiprocessors = cuda_kernels.device_attribute(
            self._index, cuda_kernels.MULTIPROCESSOR_COUNT
        )

    def load(self) -> dict[str, Failure]:
        """Loads every kernel. Returns the failures (COMPILE, RESOURCES, MEMORY) by key. Raises
        DeviceDied.

        A kernel that cannot be loaded may be an autotuned configuration that is never launched.
        """
        import torch

        torch.empty(1, device=self._device)  # torch's context is this thread's from here on
        flags = flags_of_descriptor()
        for key, kernel in self._compiled.items():
            try:
                self._load(key, kernel, flags)
            except DeviceDied:
                raise
            except Failed as failed:
                self._failures[key] = failed.failure
        return dict(self._failures)

    def _load(self, key: str, kernel: Mapping[str, Any], flags: int) -> None:
        if kernel.get("failure"):
            raise Failed(Failure.model_validate(kernel["failure"]))
        metadata = kernel["metadata"]
        name, shape = _described(metadata)
        limit = cuda_kernels.max_shared_bytes(self._index)
        if shape.shared > limit:
            message = (
                f"{name}: out of resources: {shape.shared} bytes of shared memory a block, and the GPU has "
                f"{limit}; smaller blocks or num_stages "
                "help"
            )
            raise Failed(Failure(fault=Fault.RESOURCES, message=message))
        try:
            function = LoadedKernel(_image(kernel["binary"]), name, shape, self._index)
            if kernel.get("reversed"):
                self._reversed[key] = LoadedKernel(
                    _image(kernel["reversed"]), name, shape, self._index
                )
            parameters = Parameters(kernel["signature"], metadata.get("tensordesc_meta"), flags)
        except DriverError as error:
            raise _refused(error, name) from error
        except ArgumentError as error:
            raise Failed(Failure(fault=Fault.LAUNCH, message=f"{name}: {error}")) from error
        self._functions[key], self._parameters[key] = function, parameters
        if (threads := 32 * shape.warps) > min(function.max_threads, MAX_THREADS_PER_BLOCK):
            message = (
                f"{name}: out of resources: {threads} threads a block, and its registers leave room for "
                f"{function.max_threads}"
            )
            raise Failed(Failure(fault=Fault.RESOURCES, message=message))

    def launch(self, kernel_key: str, grid: Sequence[int], args: Mapping[str, Any]) -> None:
        """Launches a kernel on torch's current stream, asynchronously. A grid with a zero launches
        nothing, as in Triton.

        Raises Failed, also for a kernel that could not be loaded.
        """
        if kernel_key in self._failures:
            raise Failed(self._failures[kernel_key])
        function, compiled = self._functions[kernel_key], self._compiled[kernel_key]
        blocks = _checked_grid(grid, function)
        if not math.prod(blocks):
            return
        if self.reverse and (
            not compiled.get("may_wait", True) or math.prod(blocks) <= self._multiprocessors
        ):
            function = self._reversed.get(kernel_key, function)
        try:
            cells = self._parameters[kernel_key].cells(args, cuda_kernels.encode)
            scratch = [
                self._scratch(compiled["metadata"], kind, math.prod(blocks))
                for kind in ("global", "profile")
            ]
            cells += [_pointer(memory) for memory in scratch]
            self._check_count(function, len(cells))
            function.launch(blocks, cells, self._stream())
        except ArgumentError as error:
            raise Failed(
                Failure(fault=Fault.LAUNCH, message=clean_text(f"{function.name}: {error}", 300))
            ) from error
        except DriverError as error:
            raise _refused(error, function.name) from error

    def _check_count(self, function: LoadedKernel, count: int) -> None:
        if function.parameters is not None and function.parameters != count:
            raise ArgumentError(
                f"the binary has {function.parameters} parameters, the launch {count}"
            )

    def _scratch(self, metadata: Mapping[str, Any], kind: str, programs: int) -> Any:
        """Allocates the scratch memory required by the compiler, freed in stream order; None if
        none is required."""
        import torch

        each = int(metadata.get(f"{kind}_scratch_size") or 0)
        nbytes = each * programs * int(metadata.get("num_ctas") or 1)
        if nbytes > MAX_SCRATCH_BYTES:
            raise ArgumentError(
                f"{nbytes} bytes of scratch memory, and no more than {MAX_SCRATCH_BYTES} are given"
            )
        return torch.empty(nbytes, dtype=torch.uint8, device=self._device) if nbytes else None

    def _stream(self) -> int:
        import torch

        return int(torch._C._cuda_getCurrentRawStream(self._index))

    def unload(self) -> None:
        """Unloads the binaries: they may no longer be launched, nor graphs with such launches be
        replayed."""
        for function in (*self._functions.values(), *self._reversed.values()):
            function.unload()
        self._functions.clear()
        self._reversed.clear()


def _image(binary: str | bytes) -> bytes:
    return base64.b64decode(binary) if isinstance(binary, str) else bytes(binary)


def _described(metadata: Mapping[str, Any]) -> tuple[str, Shape]:
    """Returns the kernel's name and the shape of its launches.

    Raises Failed for values that no compiler produces: its input may be hostile.
    """
    try:
        name, warps, ctas = (
            str(metadata["name"]),
            int(metadata["num_warps"]),
            int(metadata.get("num_ctas") or 1),
        )
        shared = int(metadata.get("shared") or 0)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise Failed(
            Failure(
                fault=Fault.LAUNCH,
                message="a kernel's metadata lack a name, warps or shared memory, or hold no numbers there",
            )
        ) from error
    if not (0 < warps <= MAX_WARPS and 0 < ctas <= MAX_CTAS and 0 <= shared < 1 << 31):
        message = f"{name}: {warps} warps, {ctas} blocks a cluster, {shared} bytes of shared memory: no GPU has so much"
        raise Failed(Failure(fault=Fault.RESOURCES, message=clean_text(message, 300)))
    cooperative, programmatic = (
        bool(metadata.get("launch_cooperative_grid")),
        bool(metadata.get("launch_pdl")),
    )
    return clean_text(name, 400), Shape(warps, shared, ctas, cooperative, programmatic)


def _pointer(tensor: Any) -> Any:
    import ctypes

    return ctypes.c_uint64(0 if tensor is None else tensor.data_ptr())


def _checked_grid(grid: Sequence[int], function: LoadedKernel) -> tuple[int, int, int]:
    x, y, z = (*grid, 1, 1)[:3]
    blocks = (x, y, z)
    ctas = (function.shape.ctas, 1, 1)
    for axis, count, times, most in zip("xyz", blocks, ctas, MAX_GRID, strict=True):
        if not isinstance(count, int) or not 0 <= count * times <= most:
            message = (
                f"{function.name}: a grid of {count} programs along {axis}; CUDA takes 0 to {most}"
            )
            raise Failed(Failure(fault=Fault.LAUNCH, message=clean_text(message, 300)))
    return blocks


def _refused(error: DriverError, name: str) -> Failed:
    """Converts a driver error of a load or launch. An earlier kernel's error may be reported here,
    too."""
    if error.code in _CONTEXT_ERRORS:
        return DeviceDied(error.code)
    fault, reason = _LAUNCH_ERRORS.get(error.code, (Fault.LAUNCH, "the driver refuses it"))
    return Failed(Failure(fault=fault, message=clean_text(f"{name}: {reason} ({error})", 300)))


class DeviceDied(Failed):
    """Raised if a kernel has destroyed the CUDA context: the process is no longer usable."""

    def __init__(self, code: int, activity: str = "a kernel") -> None:
        """activity: the cause as named in the message; the driver does not report the kernel."""
        fault, reason = _CONTEXT_ERRORS.get(code, (Fault.CRASH, "{} ended the GPU's context"))
        super().__init__(
            Failure(
                fault=fault, message=f"{reason.format(activity)} ({cuda_kernels.name_of(code)})"
            )
        )


def synchronize(activity: str = "a kernel") -> None:
    """Waits for the device. Raises DeviceDied for an error of a kernel, with the activity as its
    cause."""
    if code := cuda_kernels.device_error():
        raise DeviceDied(code, activity)


def failure_of(error: BaseException) -> tuple[Failure, bool]:
    """Converts an exception raised while steps ran on a GPU to a failure; also returns whether the
    context is lost.

    Asks the driver first; message text is read only to recognise a library's out-of-memory error.
    """
    if isinstance(error, DeviceDied):
        return error.failure, True
    if code := cuda_kernels.device_error():
        return DeviceDied(code).failure, True
    if isinstance(error, Failed):
        return error.failure, False
    fault = Fault.MEMORY if found_no_memory(error) else Fault.RUNTIME
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return Failure(fault=fault, message=clean_text(lines[0], 300)), False


def warm() -> None:
    """Imports the modules of a replaying process in a CUDA zygote, before its first fork. Creates
    no CUDA context."""
    import importlib

    for name in ("service", "gpu.process", "gpu.timing", "replay"):
        importlib.import_module(f"kernelwright.tools.replaying.{name}")
    flags_of_descriptor()
