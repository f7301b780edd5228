"""Answers which are wrong by construction: zeros, a constant, an input, another draw's output, a
left-out operator.

A problem which accepts such an answer cannot distinguish it from the right answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernelwright.tools.comparing.comparison import is_all_close, is_right
from kernelwright.tools.nested import tensors_of
from kernelwright.tools.numerics.tolerance import perturb
from kernelwright.tools.references.input_distributions import Draw, apply_draw
from kernelwright.tools.references.models.float64 import inputs_in_float64, model_in_float64
from kernelwright.tools.references.reference import Reference

if TYPE_CHECKING:
    import torch
    from torch._ops import OpOverload

    from kernelwright.torch_calls import Args, Kwargs, Types

WrongAnswer = Callable[["Trial"], list[Any] | None]
"""Outputs of a wrong answer for a trial, in the reference's order; None if not applicable."""
RUN_ERRORS = (
    RuntimeError,
    ValueError,
    TypeError,
    IndexError,
    KeyError,
    AttributeError,
    NotImplementedError,
)
"""Exceptions which a model may raise with a call left out, or in float64."""
CALLS_NEVER_LEFT_OUT = frozenset(
    [
        "contiguous",
        "view",
        "reshape",
        "view_as",
        "reshape_as",
        "clone",
        "to",
        "detach",
        "float",
        "double",
        "half",
        "type",
        "alias",
        "expand",
        "expand_as",
        "requires_grad_",
        "cpu",
        "cuda",
        "dropout",
        "dropout2d",
        "dropout3d",
        "alpha_dropout",
        "feature_alpha_dropout",
        "zeros_like",
        "ones_like",
        "empty_like",
        "rand_like",
        "randn_like",
        "full_like",
        "__get__",
        "__set__",
        "copy_",
    ]
)
"""Calls without which nothing is computed otherwise."""
MAX_CALLS_LEFT_OUT = 64


@dataclass
class Trial:
    """Draw of inputs and weights, with the reference's outputs."""

    reference: Reference
    model: torch.nn.Module
    inputs: list[Any]
    eager: list[Any]
    exact: list[Any] | None
    rng: int
    draw: str
    depth: int
    writes: bool
    """The reference writes to its inputs."""

    def again(
        self, model: torch.nn.Module | None = None, inputs: list[Any] | None = None
    ) -> list[Any]:
        """Returns the reference's outputs with the same generator state, for this model and these
        inputs if set. Writes to copies of the inputs.
        """
        import torch

        arguments = self.inputs if inputs is None else inputs
        if self.writes:
            arguments = [v.clone() if isinstance(v, torch.Tensor) else v for v in arguments]
        return self.reference.run(model or self.model, arguments, self.rng)

    def perturbed(self) -> list[Any]:
        """The reference's outputs for inputs changed by about a rounding."""
        return self.again(inputs=perturb(self.inputs, self.rng))

    @property
    def finite(self) -> bool:
        """Whether no floating-point output of eager holds an infinity or a NaN."""
        import torch

        return all(
            bool(torch.isfinite(o).all()) for o in tensors_of(self.eager) if o.is_floating_point()
        )

    def passes(self, outputs: list[Any] | None, tolerance: float) -> bool:
        """Whether outputs pass KernelBench's rule at `tolerance`."""
        pairs = _pairs(outputs, self.eager)
        return pairs is not None and all(is_all_close(a, e, tolerance) for a, e in pairs)

    def passes_ours(self, outputs: list[Any] | None) -> bool:
        """Whether the judge's comparison takes these outputs. None, or outputs of other shapes, fail."""
        if (pairs := _pairs(outputs, self.eager)) is None:
            return False
        exact = self.exact or [None] * len(pairs)
        if all(is_right(a, e, x, depth=self.depth) for (a, e), x in zip(pairs, exact, strict=True)):
            return True
        if self.draw == Draw.OWN:
            return False
        perturbed = self.perturbed()
        return all(
            is_right(a, e, x, s, self.depth)
            for (a, e), x, s in zip(pairs, exact, perturbed, strict=True)
        )


def make_trial(
    reference: Reference, model: torch.nn.Module, seed: int, draw: Draw = Draw.OWN
) -> Trial:
    """Runs the reference on a draw. Raises ProblemError if the reference fails. Uses eager
    outputs alone if float64 fails or does not fit.
    """
    import torch

    inputs = _draw_inputs(reference, seed, draw)
    before = _versions(inputs)
    eager = reference.run(model, inputs, seed)
    if writes := _versions(inputs) != before:
        inputs = _draw_inputs(reference, seed, draw)
    try:
        exact = reference.run(model_in_float64(model), inputs_in_float64(inputs), seed)
    except (*RUN_ERRORS, torch.cuda.OutOfMemoryError):
        exact = None
    drawn = sum(v.numel() for v in tensors_of(inputs))
    depth = max(1, drawn // max(1, sum(o.numel() for o in tensors_of(eager))))
    return Trial(reference, model, inputs, eager, exact, seed, str(draw), depth, writes)


def _draw_inputs(reference: Reference, seed: int, draw: Draw) -> list[Any]:
    inputs = reference.inputs(seed)
    apply_draw(draw, inputs)
    return inputs


def _versions(inputs: list[Any]) -> list[int]:
    return [v._version for v in tensors_of(inputs)]


def _pairs(outputs: list[Any] | None, eager: list[Any]) -> list[tuple[Any, Any]] | None:
    """Pairs the outputs; None for different forms, which never pass."""
    import torch

    if outputs is None or len(outputs) != len(eager) or not tensors_of(eager):
        return None
    pairs = list(zip(outputs, eager, strict=True))
    same = all(
        isinstance(a, torch.Tensor)
        and isinstance(e, torch.Tensor)
        and a.shape == e.shape
        and a.dtype == e.dtype
        for a, e in pairs
    )
    return pairs if same else None


def wrong_answers(first: Trial, fresh: Callable[[], Any]) -> Iterator[tuple[str, WrongAnswer]]:
    """Yields every wrong answer except those with an omitted call.

    first: the trial from which constants are taken, to be tried on another. fresh: a model of
    other weights.
    """
    import torch

    yield (
        "zeros",
        lambda t: [
            torch.zeros((), dtype=o.dtype, device=o.device).expand(o.shape) for o in t.eager
        ],
    )
    middles, means = ([_constant(o, how) for o in first.eager] for how in ("middle", "mean"))
    yield "constant", lambda t: _expand_to_outputs(t, middles)
    yield "mean", lambda t: _expand_to_outputs(t, means)
    yield (
        "row_0",
        lambda t: (
            [o[:1].expand_as(o) for o in t.eager]
            if all(o.dim() and o.shape[0] > 1 for o in t.eager)
            else None
        ),
    )
    for number in range(len(first.inputs)):
        yield f"input_{number}", _input_as_output(number)
    yield "other_input", _other_input
    if any(p.numel() for p in first.model.parameters()):
        yield "ignored_weights", lambda t: t.again(model=fresh())
    for name, call_number in find_droppable_calls(first).items():
        yield f"without_{name}", _without_call(call_number)


def _constant(output: torch.Tensor, how: str) -> Any:
    """A scalar of the output's dtype: the middle of its range, which any allclose likes best, or its mean."""
    if not output.numel():
        return output.new_zeros(())
    if how == "mean":
        return output.flatten()[: 1 << 26].double().mean().to(output.dtype)
    return ((output.amin().double() + output.amax().double()) / 2).to(output.dtype)


def _expand_to_outputs(trial: Trial, values: list[Any]) -> list[Any]:
    return [v.expand(o.shape) for v, o in zip(values, trial.eager, strict=True)]


def _input_as_output(number: int) -> WrongAnswer:
    return lambda t: [t.inputs[number]] * len(t.eager)


def _other_input(trial: Trial) -> list[Any]:
    """The output of other inputs, drawn alike, with the right weights."""
    return trial.again(inputs=_draw_inputs(trial.reference, trial.rng + 1, Draw(trial.draw)))


def _without_call(call_number: int) -> WrongAnswer:
    def answer(trial: Trial) -> list[Any] | None:
        try:
            with _watch_calls(call_number, {}):
                return trial.again()
        except RUN_ERRORS:
            return None

    return answer


def find_droppable_calls(trial: Trial) -> dict[str, int]:
    """Calls of the forward pass returning a tensor of their first tensor's shape and dtype:
    `relu_3` to its place among all calls. At most 64, spread.
    """
    droppable: dict[str, int] = {}
    state = {id(b) for b in trial.model.buffers()}
    with _watch_calls(None, droppable, state):
        trial.again()
    step = -(-len(droppable) // MAX_CALLS_LEFT_OUT) if droppable else 1
    return dict(list(droppable.items())[::step])


def _watch_calls(
    target: int | None, droppable: dict[str, int], state: Set[int] = frozenset()
) -> Any:
    """Returns a mode in which the call at `target` returns its first tensor; `droppable` collects
    the calls which could, except calls counting in a buffer of the model.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    class Watching(TorchFunctionMode):
        calls = 0

        def __torch_function__(
            self, func: OpOverload, types: Types, args: Args = (), kwargs: Kwargs = None
        ) -> Any:
            first_tensor = next((a for a in args if isinstance(a, torch.Tensor)), None)
            self.calls += 1
            if target == self.calls and first_tensor is not None:
                return first_tensor
            before = None if first_tensor is None else (first_tensor.shape, first_tensor.dtype)
            out = func(*args, **(kwargs or {}))
            name = getattr(func, "__name__", "")
            if (
                name not in CALLS_NEVER_LEFT_OUT
                and id(first_tensor) not in state
                and isinstance(out, torch.Tensor)
                and (out.shape, out.dtype) == before
            ):
                droppable[f"{name.strip('_')}_{len(droppable)}"] = self.calls
            return out

    return Watching()
