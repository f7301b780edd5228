"""Describes a problem's inputs without its source: for the offline compile of a candidate, and
for checking the form of its outputs.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import Field

from kernelwright.tools import wire
from kernelwright.tools.numerics.tolerance import widened
from kernelwright.tools.operators.dispatch import (
    mark_as_skipped_by_dynamo,
    meta_results_mode,
    without_dynamo,
)
from kernelwright.tools.problem import Problem, ProblemError
from kernelwright.tools.report import Value

if TYPE_CHECKING:
    import torch
    from torch._ops import OpOverload

    from kernelwright.torch_calls import Args, Kwargs, Types

log = logging.getLogger(__name__)

WITHOUT_DATA_ERRORS = (
    ProblemError,
    RuntimeError,
    NotImplementedError,
    AssertionError,
    TypeError,
    wire.WireError,
)
"""Errors of a reference which needs values but has none."""
SEED = 0
"""Seed; only integer values that `meta` does not show depend on it."""


class TensorSpec(Value):
    """A parameter, a buffer or an output."""

    name: str = ""
    kind: str = "output"
    """Role of the tensor: parameter, buffer or output."""
    shape: tuple[int, ...] = ()
    dtype: str = ""
    """torch's name without "torch."; "none" for an output other than a tensor."""


class InputSpec(Value):
    """Inputs of a problem as plain JSON.

    A tensor is {"tensor": {"shape", "stride", "dtype", "low", "high"}}; integers are drawn from
    [low, high). If the reference reads values, "values" holds the content of a small tensor.
    """

    init: Any
    """The arguments of the model, as tools.wire describes them."""
    inputs: Any
    """Arguments of forward, described."""
    weights: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    training: bool = True
    """Training mode of the built model; the candidate's is set to the same mode."""
    bytes: int = 0
    """Bytes of inputs and weights together."""
    sizes: dict[str, int] = {}
    """Replaced module-level integers."""
    tensors: str = "meta"
    """Device of the reference's run: meta (any size, in milliseconds) or cpu."""
    problem: Problem | None = Field(default=None, exclude=True, repr=False)
    """The described problem; not part of the message."""

    @property
    def output_bytes(self) -> int:
        """Total size of the output tensors in bytes."""
        import torch

        tensor_outputs = [o for o in self.outputs if o.dtype != "none"]
        return sum(
            math.prod(o.shape) * int(getattr(torch, o.dtype).itemsize) for o in tensor_outputs
        )


def input_spec(
    problem: Problem, sizes: Mapping[str, int] | None = None, *, as_it_is: bool = False
) -> InputSpec:
    """Describes the inputs at full sizes, or with `sizes` in place of module-level integers.
    Cached by problem.

    as_it_is: the problem's own sizes are small already; otherwise a reference that needs values
    runs at reduced sizes.
    Raises: ProblemError if the reference fails.
    """
    return _spec(problem, tuple(sorted((sizes or {}).items())), as_it_is)


@functools.lru_cache(512)
def _spec(
    problem: Problem, sizes: tuple[tuple[str, int], ...], as_it_is: bool = False
) -> InputSpec:
    """Runs the reference on `meta`; a reference requiring values on a CPU, at small sizes if
    available.
    """
    import torch

    resized = problem.with_sizes(dict(sizes))
    try:
        return describe_on(resized, "meta").with_(sizes=dict(sizes), problem=problem)
    except WITHOUT_DATA_ERRORS as error:
        log.debug("%s does not run on meta: %s", problem.name, error)
    if not sizes and not as_it_is:
        from kernelwright.tools.references.small_sizes import shrink

        if small := shrink(problem).sizes:
            return _spec(problem, tuple(sorted(small.items())))
    with torch.random.fork_rng(devices=[]):
        return describe_on(resized, "cpu").with_(sizes=dict(sizes), problem=problem)


def describe_on(problem: Problem, tensors: str) -> InputSpec:
    """Runs the reference once on a device, `meta` or `cpu`, and describes it. Raises ProblemError
    if the reference fails.
    """
    from kernelwright.tools.references.reference import Reference

    ranges = _Ranges()
    if tensors == "meta":
        mark_as_skipped_by_dynamo()
    quick = meta_results_mode() if tensors == "meta" else contextlib.nullcontext
    reference = Reference(problem, tensors)
    with quick(), ranges.watching():
        arguments = reference.init_arguments()
        inputs = reference.inputs(SEED)
    with quick():
        model = reference.model(SEED)
    if tensors == "meta":
        _shorten_recurrences(model)
    describe = functools.partial(_tensor, ranges=ranges, real=tensors == "cpu")
    described = wire.describe(
        reference.arguments(inputs), describe
    )  # before the reference may write to them
    with quick():
        outputs = reference.run(model, inputs, SEED)
    weights = [
        *_named("parameter", model.named_parameters()),
        *_named("buffer", model.named_buffers()),
    ]
    held = [t for t in (*inputs, *model.parameters(), *model.buffers()) if hasattr(t, "nbytes")]
    return InputSpec(
        init=wire.describe(arguments, describe),
        inputs=described,
        weights=tuple(weights),
        training=bool(getattr(model, "training", True)),
        outputs=tuple(_output(v) for v in outputs),
        bytes=sum(int(t.nbytes) for t in held),
        tensors=tensors,
    )


def _shorten_recurrences(model: torch.nn.Module) -> None:
    """LSTM, GRU and RNN layers of this model give the shapes of their outputs at once: on meta
    they would go through every step, for many seconds.
    """
    import torch

    for module in model.modules():
        if isinstance(module, torch.nn.RNNBase):
            module.forward = functools.partial(_recurrence, module)


def _recurrence(layer: Any, x: torch.Tensor, hx: torch.Tensor | None = None) -> Any:
    """Shapes as torch.nn.LSTM documents them."""
    directions = 2 if layer.bidirectional else 1
    size = layer.proj_size or layer.hidden_size
    batch = x.shape[:-1][not layer.batch_first : 2 - layer.batch_first] if x.dim() == 3 else ()
    output = x.new_empty((*x.shape[:-1], directions * size))
    hidden = x.new_empty((layer.num_layers * directions, *batch, size))
    if layer.mode != "LSTM":
        return output, hidden
    return output, (hidden, x.new_empty((layer.num_layers * directions, *batch, layer.hidden_size)))


def _named(kind: str, tensors: Any) -> Iterator[TensorSpec]:
    for name, tensor in tensors:
        yield TensorSpec(
            name=name, kind=kind, shape=tuple(map(int, tensor.shape)), dtype=_dtype(tensor)
        )


def _output(value: object) -> TensorSpec:
    import torch

    if not isinstance(value, torch.Tensor):
        return TensorSpec(dtype="none")
    return TensorSpec(shape=tuple(map(int, value.shape)), dtype=_dtype(value))


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _tensor(tensor: torch.Tensor, ranges: _Ranges, real: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "shape": list(tensor.shape),
        "stride": list(tensor.stride()),
        "dtype": _dtype(tensor),
    }
    if not tensor.is_floating_point() and not tensor.is_complex() and fields["dtype"] != "bool":
        low, high = (
            (int(tensor.min()), int(tensor.max()) + 1)
            if real and tensor.numel()
            else ranges.of(tensor)
        )
        fields |= {"low": low, "high": high}
    if (
        real
        and tensor.numel() <= MAX_INPUT_VALUES
        and not tensor.is_complex()
        and bool(widened(tensor).isfinite().all())
    ):
        fields["values"] = tensor.flatten().tolist()
    return fields


MAX_INPUT_VALUES = 1024
"""Maximum number of stored values per input for a problem whose host code reads values: it may
need positive values, or an invertible matrix.
"""


class _Ranges:
    """Bounds of the integers drawn on `meta`."""

    def __init__(self) -> None:
        self._ranges: list[tuple[Any, int, int]] = []

    def of(self, tensor: torch.Tensor) -> tuple[int, int]:
        """Returns the range [low, high) of an integer tensor; (0, 2) unless drawn by randint."""
        storage = tensor.untyped_storage()._cdata
        return next(
            ((low, high) for t, low, high in self._ranges if t.untyped_storage()._cdata == storage),
            (0, 2),
        )

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Records the bounds of all integers drawn inside the block."""
        with _watch()(self._ranges):
            yield


@functools.cache
def _watch() -> Any:
    """Returns a class of dispatch modes which note the results and bounds of randint."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class RandintWatch(TorchDispatchMode):
        def __init__(self, ranges: list[tuple[Any, int, int]]) -> None:
            super().__init__()
            self.ranges = ranges

        def __torch_dispatch__(
            self, func: OpOverload, types: Types, args: Args = (), kwargs: Kwargs = None
        ) -> Any:
            name = func.overloadpacket.__name__
            result = func(*args, **(kwargs or {}))
            if name == "randint":
                low, high = (
                    (args[0], args[1]) if func._overloadname.startswith("low") else (0, args[0])
                )
                self.ranges.append((result, int(low), int(high)))
            return result

    return without_dynamo(RandintWatch)
