"""Runs a reference without data, to find the shapes of its inputs, weights and outputs and the
number of its operations.

Trusted process only: it runs the reference's own text.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from kernelwright.device_mapping import cuda_mapped_to
from kernelwright.tools.nested import tensors_of
from kernelwright.tools.numerics.seeds import seeded
from kernelwright.tools.operators.dispatch import (
    mark_as_skipped_by_dynamo,
    meta_results,
    without_dynamo,
)
from kernelwright.tools.parsing import code_of
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.torch_settings import KeptSettings, may_change_settings
from kernelwright.tools.report import Value
from kernelwright.tools.trace.forms_of_outputs import flatten

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from torch._ops import OpOverload

    from kernelwright.torch_calls import Args, Kwargs, Types

MAX_OPERATOR_CALLS = 2_500
"""Maximum number of aten calls of a dry run: about half a second of a CPU. An LSTM over 512 steps
has 60,000.
"""

TEXT_NAME = "<reference>"
"""File name of an executed text."""
_NUMBERS = itertools.count()


class ReferenceCost(Value):
    """Cost of a call of a reference, and the shapes of its tensors."""

    inputs: tuple[tuple[int, ...], ...]
    """Shapes of the input tensors."""
    outputs: tuple[tuple[int, ...], ...]
    weights: tuple[tuple[int, ...], ...]
    """Shapes of parameters and buffers."""
    init: str
    """The result of get_init_inputs() as text."""
    elements: int
    """Elements of inputs, outputs and weights together."""
    operations: int
    """Floating-point operations of products and convolutions, plus one operation per element
    written by anything.
    """
    ops: int
    """Total number of aten calls."""
    draw_lines: tuple[int, ...] = ()
    """Lines of the text at which forward calls operators which may draw random numbers; 0 for an
    unknown line.
    """


class DryRunFailed(Exception):
    """The reference raised, or made more aten calls than the limit. The text is the first line of its error."""

    def __init__(self, why: str, ops: int) -> None:
        super().__init__(why)
        self.ops = ops
        """Number of aten calls before the failure."""


def measure_cost(problem: Problem, most_ops: int = MAX_OPERATOR_CALLS) -> ReferenceCost:
    """Runs the reference on meta tensors. Raises DryRunFailed."""
    mark_as_skipped_by_dynamo()
    counted = _counter()(most_ops)
    try:
        return _measure_cost(problem, counted)
    except Exception as error:
        why = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"
        raise DryRunFailed(why, counted.ops) from error


def _measure_cost(problem: Problem, counted: Any) -> ReferenceCost:
    import torch

    with (
        load_for_dry_run(problem.source, "meta") as module,
        without_data(),
        torch.no_grad(),
        counted,
    ):
        init = module.get_init_inputs()
        model = module.Model(*init)
        inputs = module.get_inputs()
        counted.draw_lines.clear()
        outputs = flatten(model(*inputs))
    held = [*model.parameters(), *model.buffers()]
    input_tensors, output_tensors = tensors_of(inputs), tensors_of(outputs)
    return ReferenceCost(
        inputs=_shapes(input_tensors),
        outputs=_shapes(output_tensors),
        weights=_shapes(held),
        init=repr(init),
        elements=sum(t.numel() for t in (*input_tensors, *output_tensors, *held)),
        operations=counted.operations,
        ops=counted.ops,
        draw_lines=tuple(dict.fromkeys(counted.draw_lines)),
    )


def count_held_elements(problem: Problem) -> int:
    """Elements of inputs and weights, for a reference requiring data."""

    with load_for_dry_run(problem.source, "meta") as module, without_data():
        model = module.Model(*module.get_init_inputs())
        return sum(
            t.numel()
            for t in (*tensors_of(module.get_inputs()), *model.parameters(), *model.buffers())
        )


@contextlib.contextmanager
def without_data() -> Iterator[None]:
    """Context manager in which new tensors have no values, including `torch.normal` of numbers,
    which `torch.device` does not move."""
    import torch

    with torch.device("meta"), _normal_too()():
        yield


@functools.cache
def _normal_too() -> Any:
    """Returns a class of modes in which `torch.normal` of numbers yields no values."""
    import torch
    from torch.overrides import TorchFunctionMode

    class NormalToo(TorchFunctionMode):
        def __torch_function__(
            self,
            function: Callable[..., Any],
            types: Sequence[type],
            args: Sequence[Any] = (),
            kwargs: dict[str, Any] | None = None,
        ) -> Any:
            named = dict(kwargs or {})
            if function is torch.normal and not tensors_of([*args[:2], *named.values()]):
                named.setdefault("device", torch.device("meta"))
            return function(*args, **named)

    return NormalToo


def run_once(problem: Problem) -> list[Any]:
    """Returns the outputs of a real call on the CPU, from a fixed seed. Restores the process's
    own generator.
    """
    import torch

    with load_for_dry_run(problem.source) as module, torch.no_grad(), seeded(0):
        model = module.Model(*module.get_init_inputs())
        return flatten(model(*module.get_inputs()))


@contextlib.contextmanager
def load_for_dry_run(source: str, device: str = "cpu") -> Iterator[types.ModuleType]:
    """Loads the reference as a module of its own, removed afterwards. Suppresses its warnings
    about unusual sizes.

    device: replaces every CUDA device named in the text, until the block ends.
    """
    module = types.ModuleType(f"dry_run_{next(_NUMBERS)}")
    sys.modules[module.__name__] = module
    try:
        changes = may_change_settings(source)
        settings = KeptSettings(python="random" in source, changes=changes)
        with cuda_mapped_to(device, source), settings, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(code_of(source, TEXT_NAME), module.__dict__)
            yield module
    except SystemExit as error:
        raise RuntimeError("the reference ends the program (sys.exit)") from error
    finally:
        del sys.modules[module.__name__]


def _shapes(tensors: list[Any]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(t.shape) for t in tensors)


def _line_at_work() -> int:
    """Returns the line of the reference being executed; 0 if none."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == TEXT_NAME:
            return frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    return 0


@functools.cache
def _counter() -> Any:
    """Returns a class of dispatch modes that count operators.

    They answer reads of numbers from tensors without data, which a real run must confirm.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    from kernelwright.tools.operators.operators import operations_by_formula

    draws = torch.Tag.nondeterministic_seeded
    answers, quick = _meta_answers(), meta_results()
    distances = (torch.ops.aten._cdist_forward, torch.ops.aten._euclidean_dist)

    class Counter(TorchDispatchMode):
        def __init__(self, most: int) -> None:
            super().__init__()
            self.most = most
            self.operations = 0
            self.ops = 0
            self.draw_lines: list[int] = []

        def __torch_dispatch__(
            self, func: OpOverload, types: Types, args: Args = (), kwargs: Kwargs = None
        ) -> Any:
            packet, options = func.overloadpacket, kwargs or {}
            self.ops += 1
            if draws in func.tags:
                self.draw_lines.append(_line_at_work())
            if self.ops > self.most:
                raise RuntimeError(f"over {self.most:,} aten calls")
            out = quick[packet](tuple(args), options) if packet in quick else None
            if (
                out is None
                and packet in answers
                and isinstance(args[0], torch.Tensor)
                and args[0].device.type == "meta"
            ):
                out = answers[packet](*args)
            elif out is None:
                out = func(*args, **options)
            self.operations += operations_by_formula(func, args, options, out) or 0
            if packet in distances:  # no products to torch, and their outputs are few
                self.operations += 2 * out.numel() * args[0].shape[-1]
            self.operations += sum(t.numel() for t in tensors_of(out))
            return out

    return without_dynamo(Counter)


def _meta_answers() -> dict[Any, Callable[..., Any]]:
    """Returns results of operators on meta tensors, slow in torch (a batch
    norm 5 ms), or refuses without data.
    """
    import torch

    aten = torch.ops.aten

    def itself(tensor: torch.Tensor, *_: Any) -> Any:
        return tensor

    def normalised(tensor: torch.Tensor, *_: Any) -> Any:
        channels = tensor.shape[1]
        return torch.empty_like(tensor), tensor.new_empty(channels), tensor.new_empty(channels)

    return {
        aten._local_scalar_dense: lambda tensor: 0.5 if tensor.is_floating_point() else 1,
        **dict.fromkeys((aten.uniform_, aten.normal_, aten.zero_, aten.fill_), itself),
        **dict.fromkeys((aten.native_batch_norm, aten.cudnn_batch_norm), normalised),
    }
