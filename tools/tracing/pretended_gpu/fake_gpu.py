"""Pretends a GPU to torch: fake tensors of full size on cuda:0, torch.cuda's answers for the
target, no device access.

Installed once in a candidate's process, which ends with the candidate: nothing is restored.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, in_kernel_invocation_manager
from torch.overrides import TorchFunctionMode

from kernelwright.known_values import KnownValues
from kernelwright.tools.hardware.targets import Target
from kernelwright.tools.operators.dispatch import without_dynamo
from kernelwright.tools.tracing.pretended_gpu import gradients
from kernelwright.tools.tracing.pretended_gpu import private_names as symbols
from kernelwright.tools.tracing.pretended_gpu import torch_cuda_answers as redirect
from kernelwright.tools.tracing.pretended_gpu.torch_cuda_answers import CUDA

if TYPE_CHECKING:
    from torch._ops import OpOverload

    from kernelwright.torch_calls import Args, Kwargs, Types


_REGISTRY = "_ZN3c104impl26device_guard_impl_registryE"
"""c10::impl::device_guard_impl_registry: a pointer per device type
(c10/core/impl/DeviceGuardImplInterface.h)."""
_CUDA_INDEX, _META_INDEX = 1, 14
"""Values of c10::DeviceType."""

VALUES = KnownValues()
"""Known values of the candidate's tensors."""
_libraries: list[torch.library.Library] = []
"""Libraries whose registrations must stay alive."""
ignored: Counter[str] = Counter()
"""Counts of calls without effect offline: torch.compile."""


def install(target: Target) -> None:
    """Installs the pretended GPU. Raises OSError or ValueError if this torch has no registry of
    device guards."""
    _describe_gru()
    redirect.install(target.capability, target.multiprocessors, target.shared_per_block)
    _answer_for(target)
    install_device_guard()
    replaced: list[tuple[Any, str, Any]] = [
        (torch._subclasses.fake_tensor, "init_gpu_context", lambda *args, **kwargs: None),
        (FakeTensor, "data_ptr", _address),
        (FakeTensor, "__deepcopy__", _deep_copy),
        (torch.nn.Module, "_apply", _apply),
        (torch, "compile", _not_compiled),
        (torch.autograd, "grad", gradients.grad),
        (torch.autograd, "backward", gradients.backward),
        (torch.Tensor, "backward", gradients.backward_of_tensor),
        (
            torch.nn.RNNBase,
            "flatten_parameters",
            lambda self: None,
        ),  # a kernel of cuDNN's lays weights side by side
        (torch.library, "wrap_triton", lambda kernel: kernel),
        (torch.cuda, "_lazy_init", lambda: None),
        (torch.cuda, "CUDAGraph", redirect._Nothing),
        (torch.cuda, "graph", redirect._Nothing),
    ]
    for owner, name, replacement in replaced:
        setattr(owner, name, replacement)
    _stand_in_for_missing()


def _stand_in_for_missing() -> None:
    """Adds functions that libraries expect of a CUDA build of torch, and locks that need no
    writable /dev/shm."""
    if not hasattr(torch._C, "_cuda_getCurrentRawStream"):
        setattr(torch._C, "_cuda_getCurrentRawStream", lambda *_: 0)  # noqa: B010
    multiprocessing.Lock = lambda *_: threading.Lock()  # type: ignore[assignment]
    multiprocessing.RLock = lambda *_: threading.RLock()  # type: ignore[assignment]


def _describe_gru() -> None:
    """Registers the output shapes of the GRU cell, the only layer without a meta kernel in torch.

    Its only kernel is CUDA's (aten/src/ATen/native/cuda/RNN.cu).
    """

    def cell(gates: Any, hidden: Any, before: Any, *biases: Any) -> tuple[Any, Any]:
        return torch.empty_like(before), before.new_empty((before.shape[0], before.shape[1] * 5))

    if not torch._C._dispatch_has_kernel_for_dispatch_key("aten::_thnn_fused_gru_cell", "Meta"):
        _libraries.append(torch.library.Library("aten", "IMPL"))
        _libraries[-1].impl("_thnn_fused_gru_cell", cell, "Meta")


def _answer_for(target: Target) -> None:
    properties = torch.cuda.get_device_properties(0)
    described: dict[str, Any] = {
        "name": target.title, "total_memory": target.memory, "warp_size": target.warp_size, "L2_cache_size": target.l2,
        "max_threads_per_multi_processor": target.threads,
        "max_threads_per_block": target.threads_per_block, "regs_per_multiprocessor": target.registers,
        "shared_memory_per_multiprocessor": target.shared_per_multiprocessor,
        "gcnArchName": str(target.arch) if target.backend == "hip" else "", "is_integrated": 0, "is_multi_gpu_board": 0,
    }  # fmt: skip
    for name, value in described.items():
        setattr(properties, name, value)
    torch.cuda.get_device_name = lambda *args: target.title
    torch.cuda.get_arch_list = lambda: [target.name]
    accelerator = getattr(torch, "accelerator", None)
    answers: dict[str, Any] = {
        "is_available": True,
        "device_count": 1,
        "current_device_index": 0,
        "synchronize": None,
        "set_device_index": None,
    }
    for name, answer in answers.items():
        if hasattr(accelerator, name):
            setattr(accelerator, name, lambda *args, answer=answer, **kwargs: answer)
    if accelerator is not None:
        accelerator.current_accelerator = lambda *args, **kwargs: torch.device("cuda")


def install_device_guard() -> None:
    """Installs the device guard of `meta`, which does nothing, for cuda: a CPU build has none, but
    views and copies use it.

    A CUDA build without a visible GPU installs an inactive guard itself.
    """
    if ensure := symbols.find("torch._C", "_ensureCUDADeviceGuardSet"):
        ensure()
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    registry = (ctypes.c_void_p * (_META_INDEX + 1)).in_dll(library, _REGISTRY)
    if registry[_CUDA_INDEX] is None:
        registry[_CUDA_INDEX] = registry[_META_INDEX]


_laid: dict[int, int] = {}
"""Storages declared to share the address of another storage."""


def lay_at(tensor: torch.Tensor, other: torch.Tensor) -> None:
    """Declares that the tensor's memory starts at the other's address, like a reused block of a
    freed tensor."""
    _laid[tensor.untyped_storage()._cdata] = other.untyped_storage()._cdata


def _address(tensor: torch.Tensor) -> int:
    """Returns the address as on a GPU: storages start at multiples of 256 bytes, a view at its
    offset."""
    storage = tensor.untyped_storage()._cdata
    address = (_laid.get(storage, storage) << 8) + int(
        tensor.storage_offset()
    ) * tensor.dtype.itemsize
    _exposed_addresses[address] = tensor
    return address


_exposed_addresses: dict[int, torch.Tensor] = {}
"""Addresses passed to the host code, with the tensors that start there."""


def is_address(number: int) -> bool:
    """Returns True if the number was passed to the host code as a tensor's address."""
    return number in _exposed_addresses


def tensor_at(address: int) -> tuple[torch.Tensor, int] | None:
    """Returns the tensor that contains an address, and the offset in bytes; None if there is none.

    Only addresses derived from those passed to the host code are found.
    """
    if address in _exposed_addresses:
        return _exposed_addresses[address], 0
    for begin, tensor in _exposed_addresses.items():
        if 0 <= address - begin < tensor.untyped_storage().nbytes():
            return tensor, address - begin
    return None


def _apply(self: Any, fn: Any, recurse: bool = True) -> Any:
    """Replaces nn.Module._apply, without swapping tensors in place, which fake tensors refuse."""
    if recurse:
        for child in self.children():
            child._apply(fn)
    for key, parameter in self._parameters.items():
        if parameter is not None:
            with torch.no_grad():
                moved = fn(parameter)
            self._parameters[key] = torch.nn.Parameter(moved, parameter.requires_grad)
    for key, buffer in self._buffers.items():
        if buffer is not None:
            self._buffers[key] = fn(buffer)
    return self


def _deep_copy(tensor: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
    """Copies a tensor by operators in `copy.deepcopy`: torch copies the storage, which no trace
    shows."""
    if id(tensor) not in memo:
        copy = tensor.detach().clone()
        if isinstance(tensor, torch.nn.Parameter):
            copy = torch.nn.Parameter(copy, tensor.requires_grad)
        memo[id(tensor)] = copy
    copied: torch.Tensor = memo[id(tensor)]
    return copied


def _not_compiled(model: Any = None, **options: Any) -> Any:
    ignored["torch.compile"] += 1
    return (lambda function: function) if model is None else model


without_dynamo(FakeTensorMode)
without_dynamo(FakeTensor)


class Fakes(FakeTensorMode):
    """Fake tensors that never look for a real device."""

    avoid_device_init = True

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)

    def __torch_dispatch__(
        self, func: OpOverload, types: Types, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if (number := VALUES.number(func, args)) is not None:
            return number
        VALUES.forget_written(func, (*args, *kwargs.values()))
        result: Any = self._fresh(func, args, kwargs)
        if result is None:
            result = super().__torch_dispatch__(func, types, args, kwargs)
        VALUES.give(func, args, kwargs, result)
        return result

    def _fresh(
        self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> FakeTensor | None:
        """Returns the result of an operator that allocates on the pretended GPU, without torch's
        fake tensor cache; else None.

        The cache never hits: every size of a trace is new.
        """
        if func not in _ALLOCATING:
            return None
        like = args[0] if func is _EMPTY_LIKE else None
        if like is not None and (type(like) is not FakeTensor or like._has_symbolic_sizes_strides):
            return None
        device = kwargs.get("device") or (like.device if like is not None else None)
        if device != CUDA or (like is None and not all(map(_is_plain, args))):
            return None
        with in_kernel_invocation_manager(self):
            return FakeTensor(self, func(*args, **{**kwargs, "device": _META}), CUDA)


_META = torch.device("meta")
_EMPTY_LIKE = torch.ops.aten.empty_like.default
_ALLOCATING = (
    torch.ops.aten.empty.memory_format,
    torch.ops.aten.empty_strided.default,
    _EMPTY_LIKE,
)


def _is_plain(sizes: Any) -> bool:
    return isinstance(sizes, list | tuple) and all(type(size) is int for size in sizes)


class FirstDevice(TorchFunctionMode):
    """Function mode that maps `cuda` to cuda:0, since there is no current device, and skips
    real-device operations."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Types, args: Args = (), kwargs: Kwargs = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if name == "cuda":
            return args[0].to(
                _numbered(
                    args[1] if len(args) > 1 and args[1] is not None else kwargs.get("device") or 0
                )
            )
        if name in ("pin_memory", "record_stream"):
            return args[0] if name == "pin_memory" else None
        if kwargs.get("device") is not None:
            kwargs["device"] = _numbered(kwargs["device"])
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        if name == "to" and len(args) > 1:
            args = (args[0], _numbered(args[1]), *args[2:])
        return func(*args, **kwargs)


def _numbered(device: Any) -> Any:
    if isinstance(device, int) and not isinstance(device, bool):
        return torch.device("cuda", device)
    if isinstance(device, torch.device) and device.type == "cuda" and device.index is None:
        return CUDA
    return CUDA if isinstance(device, str) and device == "cuda" else device


@contextlib.contextmanager
def fake() -> Iterator[None]:
    """Context manager in which every tensor is fake: full shapes, no memory, no values."""
    with Fakes(), FirstDevice():
        yield


def fake_tensor(
    shape: list[int], stride: list[int], dtype: torch.dtype, offset: int = 0
) -> torch.Tensor:
    """Returns a fake tensor, inside of `fake`. offset: elements of the storage before the first
    element.

    Calls the operator directly: torch.empty_strided would record a second tensor, its `detach`.
    """
    if not offset:
        return torch.ops.aten.empty_strided.default(shape, stride, dtype=dtype, device=CUDA)
    reach = sum((extent - 1) * step for extent, step in zip(shape, stride, strict=True))
    storage = torch.ops.aten.empty_strided.default(
        [offset + reach + 1], [1], dtype=dtype, device=CUDA
    )
    return torch.ops.aten.as_strided.default(storage, shape, stride, offset)
