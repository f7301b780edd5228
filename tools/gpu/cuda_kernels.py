"""Loads and launches compiled kernels by the CUDA driver API, through ctypes.

No launcher is compiled, nothing of Triton's is called.

CUDA Driver API: cuModuleLoadData, cuModuleGetFunction, cuFuncGetAttribute, cuFuncSetAttribute, cuFuncGetParamInfo,
cuLaunchKernelEx, cuTensorMapEncodeTiled.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernelwright.tools.gpu.kernel_arguments import TensorMap

STATIC_SHARED_BYTES = 48 << 10
"""Bytes a block that need no leave of the driver."""
MAX_GRID = ((1 << 31) - 1, 65535, 65535)
"""Blocks a dimension (CUDA C++ Programming Guide, table of technical specifications)."""
MAX_THREADS_PER_BLOCK = 1024
TENSOR_MAP_BYTES = 128
TENSOR_MAP_ALIGNMENT = 128

_MAX_THREADS, _STATIC_SHARED_SIZE, _DYNAMIC_SHARED, _LARGE_CLUSTERS = 0, 1, 8, 14
"""CUfunction_attribute."""
_OPT_IN_SHARED = 97
"""CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN."""
MULTIPROCESSOR_COUNT = 16
"""CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT."""
_PREFER_SHARED = 1
"""CU_FUNC_CACHE_PREFER_SHARED."""
_COOPERATIVE, _CLUSTER, _CLUSTER_POLICY, _PROGRAMMATIC = 2, 4, 5, 6
"""CUlaunchAttributeID."""
_SPREAD = 1
"""CU_CLUSTER_SCHEDULING_POLICY_SPREAD."""
_L2_PROMOTION_128B, _FILL_NAN = 2, 1
"""CUtensorMapL2promotion and CUtensorMapFloatOOBfill."""

SUCCESS, NOT_FOUND = 0, 500
"""CUresult."""


class DriverError(RuntimeError):
    """A call of the driver failed with `code`, a CUresult."""

    def __init__(self, code: int, call: str) -> None:
        self.code = code
        self.call = call
        super().__init__(f"{call}: {name_of(code)} ({code})")


class _Value(ctypes.Union):
    """CUlaunchAttributeValue, as far as it is used."""

    _fields_ = (
        ("padding", ctypes.c_char * 64),
        ("number", ctypes.c_int),
        ("dimensions", ctypes.c_uint * 3),
    )


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = (("key", ctypes.c_int), ("padding", ctypes.c_char * 4), ("value", _Value))


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


_library: Any = None


def driver() -> Any:
    """libcuda. Raises OSError where there is none."""
    global _library
    if _library is None:
        _library = ctypes.CDLL("libcuda.so.1")
    return _library


def name_of(code: int) -> str:
    """The driver's name of a CUresult, such as CUDA_ERROR_ILLEGAL_ADDRESS."""
    text = ctypes.c_char_p()
    driver().cuGetErrorName(code, ctypes.byref(text))
    return (text.value or b"unknown error").decode()


def check(code: int, call: str) -> None:
    """Raises DriverError where a call of the driver has failed."""
    if code:
        raise DriverError(code, call)


def device_error() -> int:
    """Waits for the device.

    Returns the CUresult: 0, or what a kernel has done; such an error stays until the process ends.
    """
    return int(driver().cuCtxSynchronize())


def device_attribute(device: int, attribute: int) -> int:
    """Reads an attribute of a GPU by its number in the driver's header. Raises DriverError."""
    value, handle = ctypes.c_int(), ctypes.c_int()
    check(driver().cuDeviceGet(ctypes.byref(handle), device), "cuDeviceGet")
    check(
        driver().cuDeviceGetAttribute(ctypes.byref(value), attribute, handle),
        "cuDeviceGetAttribute",
    )
    return value.value


def max_shared_bytes(device: int) -> int:
    """Bytes of shared memory a block may ask for."""
    return device_attribute(device, _OPT_IN_SHARED)


@dataclass(frozen=True)
class Shape:
    """What of a launch belongs to the kernel and not to the call, from the compiler's metadata."""

    warps: int
    shared: int = 0
    """Bytes of dynamic shared memory a block."""
    ctas: int = 1
    """Blocks a cluster."""
    cooperative: bool = False
    programmatic: bool = False
    """Programmatic dependent launch."""


class LoadedKernel:
    """One kernel in the driver."""

    def __init__(self, image: bytes, name: str, shape: Shape, device: int) -> None:
        """Loads it. Raises DriverError."""
        cuda = driver()
        self.name = name
        self.shape = shape
        self._module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        check(cuda.cuModuleLoadData(ctypes.byref(self._module), image), "cuModuleLoadData")
        try:
            code = cuda.cuModuleGetFunction(
                ctypes.byref(self._function), self._module, name.encode()
            )
            check(code, "cuModuleGetFunction")
            self._allow_shared(device)
            if shape.ctas == 16:
                check(
                    cuda.cuFuncSetAttribute(self._function, _LARGE_CLUSTERS, 1),
                    "cuFuncSetAttribute",
                )
        except DriverError:
            self.unload()
            raise
        self._attributes, self._count = _attributes(shape)
        self.parameters = self._count_parameters()
        """Parameters of the binary; None where the driver is older than CUDA 12.4."""

    def _allow_shared(self, device: int) -> None:
        """Allows, as Triton does, all the shared memory that the device has beside the kernel's static one."""
        most = max_shared_bytes(device)
        if self.shape.shared <= STATIC_SHARED_BYTES or most <= STATIC_SHARED_BYTES:
            return
        cuda = driver()
        check(cuda.cuFuncSetCacheConfig(self._function, _PREFER_SHARED), "cuFuncSetCacheConfig")
        dynamic_bytes = most - self.attribute(_STATIC_SHARED_SIZE)
        check(
            cuda.cuFuncSetAttribute(self._function, _DYNAMIC_SHARED, dynamic_bytes),
            "cuFuncSetAttribute",
        )

    def attribute(self, key: int) -> int:
        """One of CUfunction_attribute, by its number. Raises DriverError."""
        value = ctypes.c_int()
        check(
            driver().cuFuncGetAttribute(ctypes.byref(value), key, self._function),
            "cuFuncGetAttribute",
        )
        return value.value

    @property
    def max_threads(self) -> int:
        """A block, with the registers that the kernel takes."""
        return self.attribute(_MAX_THREADS)

    def _count_parameters(self) -> int | None:
        ask = getattr(driver(), "cuFuncGetParamInfo", None)
        if ask is None:
            return None
        offset, size = ctypes.c_size_t(), ctypes.c_size_t()
        count = 0
        while (
            ask(self._function, ctypes.c_size_t(count), ctypes.byref(offset), ctypes.byref(size))
            == SUCCESS
        ):
            count += 1
        return count

    def launch(self, grid: Sequence[int], cells: Sequence[Any], stream: int) -> None:
        """Returns at once. cells: one ctypes object a parameter. Raises DriverError."""
        pointers = (ctypes.c_void_p * max(len(cells), 1))(
            *[ctypes.addressof(cell) for cell in cells]
        )
        config = _Config(
            grid=(ctypes.c_uint * 3)(grid[0] * self.shape.ctas, grid[1], grid[2]),
            block=(ctypes.c_uint * 3)(32 * self.shape.warps, 1, 1),
            shared=self.shape.shared,
            stream=stream,
            attributes=self._attributes,
            count=self._count,
        )
        check(
            driver().cuLaunchKernelEx(ctypes.byref(config), self._function, pointers, None),
            "cuLaunchKernelEx",
        )

    def unload(self) -> None:
        """Unloads the kernel, which must not be launched any more, nor a graph replayed that holds it."""
        if self._module:
            driver().cuModuleUnload(self._module)
            self._module = ctypes.c_void_p()


def _attributes(shape: Shape) -> tuple[Any, int]:
    """Returns the attributes of the launch, in Triton's order."""
    attributes: list[_Attribute] = []
    if shape.programmatic:
        attributes.append(_Attribute(key=_PROGRAMMATIC, value=_Value(number=1)))
    if shape.cooperative:
        attributes.append(_Attribute(key=_COOPERATIVE, value=_Value(number=1)))
    if shape.ctas != 1:
        size = (ctypes.c_uint * 3)(shape.ctas, 1, 1)
        attributes.append(_Attribute(key=_CLUSTER, value=_Value(dimensions=size)))
        attributes.append(_Attribute(key=_CLUSTER_POLICY, value=_Value(number=_SPREAD)))
    return (_Attribute * max(len(attributes), 1))(*attributes), len(attributes)


def encode(tensor_map: TensorMap) -> Any:
    """The driver's tensor map, aligned as a parameter of a kernel has to be.

    Raises DriverError, as for a base address that is not a multiple of 16.
    """
    room = ctypes.create_string_buffer(TENSOR_MAP_BYTES + TENSOR_MAP_ALIGNMENT)
    offset = -ctypes.addressof(room) % TENSOR_MAP_ALIGNMENT
    encoded = (ctypes.c_char * TENSOR_MAP_BYTES).from_buffer(room, offset)
    rank = len(tensor_map.sizes)
    code = driver().cuTensorMapEncodeTiled(
        ctypes.byref(encoded),
        ctypes.c_int(tensor_map.element_type),
        ctypes.c_uint32(rank),
        ctypes.c_void_p(tensor_map.address),
        (ctypes.c_uint64 * rank)(*tensor_map.sizes),
        (ctypes.c_uint64 * max(rank - 1, 1))(*tensor_map.strides),
        (ctypes.c_uint32 * rank)(*tensor_map.box),
        (ctypes.c_uint32 * rank)(*[1] * rank),
        ctypes.c_int(0),
        ctypes.c_int(tensor_map.swizzle),
        ctypes.c_int(_L2_PROMOTION_128B),
        ctypes.c_int(_FILL_NAN if tensor_map.fill_nan else 0),
    )
    check(code, "cuTensorMapEncodeTiled")
    return encoded
