"""Launches the compiled kernels of a trace on a GPU, and says what went wrong there as a Failure on the candidate.

An error that a kernel causes is told by the driver at some later call, and from then on every call fails: the CUDA
context is dead and the process with it.
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

MAX_WARPS, MAX_CTAS = 32, 16
MAX_SCRATCH_BYTES = 4 << 30
"""Bytes of scratch memory that one launch may ask for."""

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
"""CUresult -> what a kernel did. The context is dead afterwards."""
_LAUNCH_ERRORS = {
    2: (Fault.MEMORY, "the GPU has no memory left"),
    200: (Fault.COMPILE, "the driver does not take the binary"),
    209: (Fault.COMPILE, "the binary is for another GPU"),
    701: (Fault.RESOURCES, "out of resources: more registers or threads a block than the GPU has"),
    720: (Fault.RESOURCES, "a cooperative launch with more blocks than fit on the GPU at once"),
    912: (Fault.RESOURCES, "a cluster of more blocks than the GPU takes"),
}
"""CUresult -> why a launch was refused. The context lives on."""


class Binaries:
    """The kernels of one trace as binaries, by the trace's keys. On one device, whose context is torch's."""

    def __init__(self, compiled: Mapping[str, Mapping[str, Any]], device: str = "cuda:0") -> None:
        """compiled: kernel's key -> `binary` (bytes, or base64 as text), `metadata` (the compiler's) and `signature`
        (parameter -> Triton's type); `reversed`, where there is one, is the binary with its programs numbered from the
        other end, and `may_wait` whether one of them may wait for another.

        A kernel that could not be compiled has `failure` instead, a Failure as JSON.
        """
        self._compiled, self._device = compiled, device
        self._failures: dict[str, Failure] = {}
        self._index = int(device.partition(":")[2] or 0)
        self._functions: dict[str, LoadedKernel] = {}
        self._reversed: dict[str, LoadedKernel] = {}
        self._parameters: dict[str, Parameters] = {}
        self.reverse = False
        """Whether programs are numbered from the other end, in launches whose programs wait for no other, or all run at
        once: there none waits for one that has not begun.
        """
        self._multiprocessors = cuda_kernels.device_attribute(
            self._index, cuda_kernels.MULTIPROCESSORS
        )

    def load(self) -> dict[str, Failure]:
        """Every kernel.

        Gives those that cannot be loaded (COMPILE, RESOURCES, MEMORY): an autotuner may have asked for more than it
        needs. Raises DeviceDied.
        """
        import torch

        torch.empty(1, device=self._device)  # torch's context is this thread's from here on
        flags = flags_of_descriptor()
        for key, one in self._compiled.items():
            try:
                self._load(key, one, flags)
            except DeviceDied:
                raise
            except Failed as failed:
                self._failures[key] = failed.failure
        return dict(self._failures)

    def _load(self, key: str, one: Mapping[str, Any], flags: int) -> None:
        if one.get("failure"):
            raise Failed(Failure.model_validate(one["failure"]))
        metadata = one["metadata"]
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
            function = LoadedKernel(_image(one["binary"]), name, shape, self._index)
            if one.get("reversed"):
                self._reversed[key] = LoadedKernel(
                    _image(one["reversed"]), name, shape, self._index
                )
            parameters = Parameters(one["signature"], metadata.get("tensordesc_meta"), flags)
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
        """One launch on torch's current stream; a grid with a 0 in it launches nothing, as in Triton.

        Returns at once. Raises Failed, as for a kernel that was not loaded.
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
            cells += [_pointer(one) for one in scratch]
            self._check_count(function, len(cells))
            function.launch(blocks, cells, self._stream())
        except ArgumentError as error:
            raise Failed(
                Failure(fault=Fault.LAUNCH, message=clean_text(f"{function.name}: {error}", 300))
            ) from error
        except DriverError as error:
            raise _refused(error, function.name) from error

    def _check_count(self, function: LoadedKernel, given: int) -> None:
        if function.parameters is not None and function.parameters != given:
            raise ArgumentError(
                f"the binary has {function.parameters} parameters, the launch {given}"
            )

    def _scratch(self, metadata: Mapping[str, Any], kind: str, programs: int) -> Any:
        """Memory that the compiler asks for beside the arguments, freed in the order of the stream; None where it
        asks for none.
        """
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
        """Unloads the binaries: nothing of them may be launched any more, and no graph replayed that holds such a
        launch.
        """
        for function in (*self._functions.values(), *self._reversed.values()):
            function.unload()
        self._functions.clear()
        self._reversed.clear()


def _image(binary: str | bytes) -> bytes:
    return base64.b64decode(binary) if isinstance(binary, str) else bytes(binary)


def _described(metadata: Mapping[str, Any]) -> tuple[str, Shape]:
    """The entry's name, and the shape of its launches.

    Raises Failed for what a compiler would not say: it had hostile input.
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
    """What the driver said to a load or a launch. An error of an earlier kernel is told here too."""
    if error.code in _CONTEXT_ERRORS:
        return DeviceDied(error.code)
    fault, told = _LAUNCH_ERRORS.get(error.code, (Fault.LAUNCH, "the driver refuses it"))
    return Failed(Failure(fault=fault, message=clean_text(f"{name}: {told} ({error})", 300)))


class DeviceDied(Failed):
    """A kernel has ended the CUDA context: nothing runs in this process any more."""

    def __init__(self, code: int, what: str = "a kernel") -> None:
        """what: that did it; the driver does not say which kernel it was."""
        fault, told = _CONTEXT_ERRORS.get(code, (Fault.CRASH, "{} ended the GPU's context"))
        super().__init__(
            Failure(fault=fault, message=f"{told.format(what)} ({cuda_kernels.name_of(code)})")
        )


def synchronize(what: str = "a kernel") -> None:
    """Waits until the device has done everything. Raises DeviceDied for what a kernel did, which is called `what`."""
    if code := cuda_kernels.device_error():
        raise DeviceDied(code, what)


def failure_of(error: BaseException) -> tuple[Failure, bool]:
    """Any exception that came while steps ran on a GPU: the failure that it is, and whether the context is dead.

    The driver is asked; a text is read only where a library found no memory.
    """
    if isinstance(error, DeviceDied):
        return error.failure, True
    if code := cuda_kernels.device_error():
        return DeviceDied(code).failure, True
    if isinstance(error, Failed):
        return error.failure, False
    fault = Fault.MEMORY if found_no_memory(error) else Fault.RUNTIME
    told = str(error).strip().splitlines() or [type(error).__name__]
    return Failure(fault=fault, message=clean_text(told[0], 300)), False


def warm() -> None:
    """What a zygote of kind CUDA does before its first fork: the modules that a replaying process needs are
    imported. Makes no CUDA context.
    """
    import importlib

    for name in ("service", "gpu.process", "gpu.timing", "replay"):
        importlib.import_module(f"kernelwright.tools.replaying.{name}")
    flags_of_descriptor()
