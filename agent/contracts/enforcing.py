"""The checker in a kernel file: `guard_text.py` copies the text below the imports into each file,
unchanged.

All decisions are made on the host: the checks launch nothing, wait for nothing, and read no element
of a tensor. `sizes` holds the values of the named sizes, in the constructor's arguments and in
those of a call.
"""

import os

import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET", "0") != "0"
MAX_ELEMENTS = 2**31 - 1


class OutsideContract(ValueError):
    """The kernel was not judged for this call."""


def require(holds, *words):
    if not holds:
        raise OutsideContract(" ".join(" ".join(map(str, words)).split()))


def size(name, value, judged, sizes):
    number = sizes.setdefault(judged, value) if isinstance(judged, str) else judged
    fits = type(value) is int and value == number
    require(fits, name, "is", value, "and must be", *dict.fromkeys((judged, number)))
    require(value > 0 or judged in (0, *sizes.get("may be 0", ())), name, "is 0, and no empty tensor was judged")
    return value


def only(name, value, judged):
    same = not isinstance(value, torch.Tensor) and isinstance(value, bool) is isinstance(judged, bool)
    same = same and (value == judged or (value != value and judged != judged))
    require(same, name, "must be", repr(judged), "and is", repr(value))
    return judged


def tensor(name, value, dtype, shape, sizes, order=None, layouts=(), written=False):
    dense = isinstance(value, torch.Tensor) and value.layout is torch.strided and not value.is_nested
    require(dense and not hasattr(value, "__tensor_flatten__"), name, "must be a dense tensor, not", type(value))
    fits = value.dtype is dtype and value.dim() == len(shape) and value.numel() <= MAX_ELEMENTS
    require(fits, name, "is", value.dtype, tuple(value.shape), "and must be", dtype, shape, "below 2**31 elements")
    for k, judged in enumerate(shape):
        size(f"{name}.shape[{k}]", value.shape[k], judged, sizes)
    device = sizes.setdefault("the device", value.device)
    require(value.device == device, name, "is on", value.device, "and must be on", device, "as the others")
    on_gpu = value.is_cuda and value.get_device() == torch.cuda.current_device()
    usable = on_gpu or (INTERPRETED and device.type == "cpu")
    require(usable, name, "is on", device, "and not on the current GPU: move it, or start with TRITON_INTERPRET=1")
    trained = value.requires_grad and torch.is_grad_enabled()
    require(not trained, name, "requires grad, and this kernel has no backward: use torch.no_grad() or detach()")
    require(not torch.is_autocast_enabled(device.type), "autocast is on, and this kernel was judged without it")
    order = tuple(range(len(shape))) if order is None else order
    traced = torch.compiler.is_compiling()  # torch.compile has no offset and no flags of a view
    as_judged, step = traced or not (value.storage_offset() or value.is_conj() or value.is_neg()), 1
    for k in reversed(order):
        as_judged, step = as_judged and (len(layouts) > 0 or value.stride(k) == step), step * value.shape[k]
    if as_judged and (not layouts or (tuple(value.shape), tuple(value.stride())) in layouts):
        return value.resolve_conj().resolve_neg()
    require(not layouts and not written, name, "has strides that were not judged, and must not be copied")
    return torch.empty_permuted(value.shape, order, dtype=dtype, device=device).copy_(value)


def weights_of(module):
    weights = [*module.named_parameters(), *module.named_buffers()]
    return [(name, w.dtype, w.is_contiguous() or tuple(w.stride()), w.device) for name, w in weights]


def check_weights(module, sizes, cast=None):
    for (name, *kind, device), (_, *built, _) in zip(weights_of(module), module.judged_contract[1], strict=True):
        built[0] = cast if cast is not None and built[0].is_floating_point else built[0]
        require(kind == built, name, "is", *kind, "and must be as it was built:", *built)
        require(device == sizes.get("the device", device), name, "is on", device, "and the inputs are not")


class NoBackward(torch.autograd.Function):
    forward = staticmethod(lambda ctx, output, *weights: output.view_as(output))
    backward = staticmethod(lambda ctx, *grad_outputs: require(False, "this kernel has no backward"))


def finish(module, output, trained):
    weights = [w for w in module.parameters() if w.requires_grad and torch.is_grad_enabled()]
    outputs, form = torch.utils._pytree.tree_flatten(output)
    elements = [value.numel() for value in outputs if isinstance(value, torch.Tensor)]
    require(max(elements, default=0) <= MAX_ELEMENTS, "the output has more elements than were judged")
    outputs = [NoBackward.apply(v, *weights) if weights and k in trained else v for k, v in enumerate(outputs)]
    return torch.utils._pytree.tree_unflatten(outputs, form)
