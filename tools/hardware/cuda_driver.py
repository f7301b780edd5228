"""Shares GPU memory between two processes, by ctypes calls of the CUDA driver: raw allocations
and their IPC handles.

torch's own sharing is not used: it pickles, counts references in files under /dev/shm, and would
export the judge's whole caching segments, including expected outputs. CUDA Driver API:
cuMemAlloc, cuIpcGetMemHandle, cuIpcOpenMemHandle.
"""

from __future__ import annotations

import ctypes
from typing import Any

HANDLE_BYTES = 64
_OUT_OF_MEMORY = 2
"""Error code CUDA_ERROR_OUT_OF_MEMORY of the driver."""


class CudaError(RuntimeError):
    """Raised for a failed call of the driver."""


class CudaOutOfMemory(CudaError):
    """The device has no room for an allocation."""


class _Handle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_char * HANDLE_BYTES),)


_library: Any = None


def _driver() -> Any:
    global _library
    if _library is None:
        _library = ctypes.CDLL("libcuda.so.1")
        _library.cuIpcOpenMemHandle_v2.argtypes = [
            ctypes.POINTER(ctypes.c_uint64),
            _Handle,
            ctypes.c_uint,
        ]
    return _library


def _check(code: int, action: str) -> None:
    if code:
        text = ctypes.c_char_p()
        _driver().cuGetErrorName(code, ctypes.byref(text))
        kind = CudaOutOfMemory if code == _OUT_OF_MEMORY else CudaError
        raise kind(f"{action}: {(text.value or b'?').decode()} ({code})")


def allocate(nbytes: int) -> int:
    """Makes a raw device allocation of its own in the current context. Returns the address."""
    address = ctypes.c_uint64()
    _check(
        _driver().cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(nbytes)),
        f"cuMemAlloc of {nbytes} bytes",
    )
    return address.value


def free(address: int) -> None:
    """Frees memory from `allocate`. Raises CudaError."""
    _check(_driver().cuMemFree_v2(ctypes.c_uint64(address)), "cuMemFree")


def export(address: int) -> bytes:
    """The handle by which another process maps the whole allocation."""
    handle = _Handle()
    _check(
        _driver().cuIpcGetMemHandle(ctypes.byref(handle), ctypes.c_uint64(address)),
        "cuIpcGetMemHandle",
    )
    return ctypes.string_at(ctypes.byref(handle), HANDLE_BYTES)


def map_handle(raw: bytes) -> int:
    """Maps another process's allocation. Returns its address here."""
    handle = _Handle()
    address = ctypes.c_uint64()
    ctypes.memmove(ctypes.byref(handle), raw, HANDLE_BYTES)
    _check(_driver().cuIpcOpenMemHandle_v2(ctypes.byref(address), handle, 1), "cuIpcOpenMemHandle")
    return address.value


def unmap(address: int) -> None:
    """Unmaps a mapping from `map_handle`. Raises CudaError."""
    _check(_driver().cuIpcCloseMemHandle(ctypes.c_uint64(address)), "cuIpcCloseMemHandle")


class DeviceMemory:
    """Device memory owned by another object, in the form accepted by torch.as_tensor. A tensor
    over the memory holds this object as long as the tensor, or a view of it, exists.
    """

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
            "strides": None,
        }


def lend(address: int, nbytes: int) -> tuple[Any, Any]:
    """Returns a uint8 tensor over device memory, without copying or owning the memory, and the
    object which the tensor holds.
    """
    import torch

    memory = DeviceMemory(address, nbytes)
    return torch.as_tensor(memory, device="cuda"), memory


def as_bytes(address: int, nbytes: int) -> Any:
    """Returns the tensor of `lend` alone."""
    return lend(address, nbytes)[0]
