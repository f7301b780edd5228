"""Checks of a kernel file's guard: on the host alone, without device work or synchronisation.

Nobody imports this file. `guard_text.py` writes those of its functions that a kernel needs into the kernel's own file.
They stand inside of a function there, so that their names cannot meet those of the kernel.
"""

import torch

MAX_ELEMENTS = torch.iinfo(torch.int32).max


def check_tensor(name, value, dtype, shape, sizes):
    """Raises if an input is not the kind of tensor judged. Names in shape are sizes that may vary."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        kind = value.layout if isinstance(value, torch.Tensor) else type(value).__name__
        raise TypeError(f"{name} must be a dense tensor, not {kind}")
    if value.dtype is not dtype:
        raise TypeError(f"{name} is {value.dtype}: this kernel was judged with {dtype} only")
    if value.dim() != len(shape):
        raise ValueError(f"{name} has {value.dim()} dimensions: this kernel was judged with {len(shape)} only")
    for dimension, (extent, wanted) in enumerate(zip(value.shape, shape, strict=True)):
        check_extent(f"{name}.shape[{dimension}]", extent, wanted, sizes)
    if value.device.type not in ("cuda", "cpu") or value.device != sizes.setdefault("the device", value.device):
        raise ValueError(f"{name} is on {value.device}: all tensors must be on one GPU (on the CPU if interpreted)")
    if value.numel() > MAX_ELEMENTS:
        raise ValueError(f"{name} has {value.numel()} elements: at most {MAX_ELEMENTS} were judged")
    if value.requires_grad and torch.is_grad_enabled():
        raise RuntimeError(f"{name} requires grad and this kernel has no backward: use torch.no_grad() or detach()")
    return value


def check_extent(name, extent, wanted, sizes):
    """Raises if an extent is not the judged number, or not the value that a named size has already."""
    if isinstance(wanted, int) and extent != wanted:
        raise ValueError(f"{name} is {extent}: this kernel was judged with {wanted} only")
    if isinstance(wanted, str) and extent < 1:
        raise ValueError(f"{name} is {extent}: this kernel was not judged on empty tensors")
    if isinstance(wanted, str) and extent != sizes.setdefault(wanted, extent):
        raise ValueError(f"{name} is {extent} where {wanted} is {sizes[wanted]}")


def make_contiguous(value):
    """Returns the tensor, or a contiguous copy at the start of a storage of its own if its memory layout differs."""
    return make_dense(value, range(value.dim()))


def make_dense(value, order):
    """Returns the tensor, or a dense copy with its dimensions in this order, slowest first."""
    if is_dense(value, order):
        return value
    copy = torch.empty([value.shape[k] for k in order], dtype=value.dtype, device=value.device)
    return copy.permute([list(order).index(k) for k in range(value.dim())]).copy_(value)


def is_dense(value, order):
    """Whether a tensor is dense in this order, at the start of its storage, with no lazy conjugate or negation."""
    step, strides = 1, value.stride()
    for dimension in reversed(order):
        if strides[dimension] != step:
            return False
        step *= value.shape[dimension]
    return not value.storage_offset() and not value.is_conj() and not value.is_neg()


def refuse_copies(name, value, order):
    """Returns the tensor, which forward writes to. Raises if only a copy would lie as it was judged."""
    if not is_dense(value, order):
        raise ValueError(f"{name} is written to and has strides that were not judged: pass a contiguous tensor")
    return value


def check_layouts(name, value, layouts):
    """Returns the tensor. Raises if its shape and strides are none of those that were judged."""
    if (tuple(value.shape), tuple(value.stride())) not in layouts or value.storage_offset():
        raise ValueError(f"{name} has strides {tuple(value.stride())}, which were not judged at this shape")
    return value


def check_size(name, value, size, sizes):
    """Raises if a whole number has not the value of a named size."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, not {type(value).__name__}")
    check_extent(name, value, size, sizes)
    return value


def check_fixed(name, value, judged):
    """Raises if a plain value is not the judged one."""
    same_kind = isinstance(value, bool) is isinstance(judged, bool) and not isinstance(value, torch.Tensor)
    if not same_kind or not (value == judged or (value != value and judged != judged)):
        shown = f"a {type(value).__name__}" if isinstance(value, torch.Tensor) else repr(value)
        raise ValueError(f"{name} is {shown}: this kernel was judged with {judged!r} only")
    return value


def check_items(name, value, count):
    """Raises if a list or tuple has not the judged number of items."""
    if not isinstance(value, (list, tuple)) or len(value) != count:
        raise TypeError(f"{name} must be a list or tuple of {count}")


def check_keys(name, value, keys):
    """Raises if a dictionary has not the judged keys."""
    if not isinstance(value, dict) or set(value) != set(keys):
        raise TypeError(f"{name} must be a dictionary with the keys {', '.join(keys)}")


def check_values(name, sizes, values):
    """Raises if a size has none of the few values that were judged."""
    if sizes[name] not in values:
        raise ValueError(f"{name} is {sizes[name]}: this kernel was judged with {' and '.join(map(str, values))} only")


def check_relation(text, holds):
    """Raises if sizes do not fit together as they did in everything judged."""
    if not holds:
        raise ValueError(f"{text} does not hold: this kernel was judged only where it does")


def check_mode(module, training):
    """Raises if the module is in the mode that was not judged."""
    if module.training is not training:
        judged, call = ("training", "train") if training else ("eval", "eval")
        raise RuntimeError(f"this kernel was judged in {judged} mode only: call .{call}()")


def refuse_replaced_forward(module):
    """Raises if the judged constructor has put another forward into the module, which would not be checked."""
    if "forward" in vars(module):
        raise TypeError("the constructor of this kernel replaces forward: its contract cannot be checked")


def refuse_modes(module, mode=True):
    """Raises: the layers of this module were judged in different modes."""
    raise RuntimeError("this kernel was judged with layers in different modes: leave out .train() and .eval()")


def list_weights(module):
    """Each parameter and buffer: its table and key there, its name, the type and the strides that it was built with."""
    weights = []
    for prefix, owner in module.named_modules():
        for table in (owner._parameters, owner._buffers):
            for key, value in table.items():
                if value is not None:
                    name = f"{prefix}.{key}" if prefix else key
                    weights.append((table, key, name, value.dtype, tuple(value.stride())))
    return weights


def check_weights(weights):
    """Raises if a weight has another type or layout than it was built with."""
    for table, key, name, dtype, strides in weights:
        value = table.get(key)
        if value is None or value.dtype is not dtype:
            raise TypeError(f"{name} is {value if value is None else value.dtype}: only {dtype} was judged")
        if tuple(value.stride()) != strides and not value.is_contiguous():
            raise ValueError(f"{name} has strides that were not judged: make its data contiguous")


def check_default_type(dtype):
    """Raises if torch would build the weights in another type than they were judged in."""
    if torch.get_default_dtype() is not dtype:
        raise TypeError(f"torch's default type is {torch.get_default_dtype()}: weights were judged in {dtype}")


class NoBackward(torch.autograd.Function):
    """Marks an output that depends on weights: torch sees that it needs a gradient, and backward raises."""

    @staticmethod
    def forward(context, output, *weights):
        """Returns the output itself."""
        return output.view_as(output)

    @staticmethod
    def backward(context, *gradients):
        """Raises: there is no gradient."""
        raise RuntimeError("this kernel has no backward: train with the PyTorch module")


def mark_without_backward(output, weights, depend_on_weights):
    """Returns the output; backward of the parts that depend on weights raises if those require a gradient."""
    if not torch.is_grad_enabled():
        return output
    trained = [table[key] for table, key, *_ in weights if table[key].requires_grad]
    leaves, form = torch.utils._pytree.tree_flatten(output)
    for index, value in enumerate(leaves):
        is_number = isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())
        if trained and is_number and depend_on_weights[index : index + 1] != (False,):
            leaves[index] = NoBackward.apply(value, *trained)
    return torch.utils._pytree.tree_unflatten(leaves, form)


def check_output(output):
    """Raises if the output is larger than the indices of a kernel reach."""
    for value in [output] if isinstance(output, torch.Tensor) else torch.utils._pytree.tree_leaves(output):
        if isinstance(value, torch.Tensor) and value.numel() > MAX_ELEMENTS:
            raise ValueError(f"the output has {value.numel()} elements: at most {MAX_ELEMENTS} were judged")
    return output
