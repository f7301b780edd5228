"""Prepared problem on a device: reference models, form of the outputs, and inputs changed by
forward. Prepared once and used for every candidate.
"""

from __future__ import annotations

import functools
import traceback
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernelwright.tools.comparing.comparison import Described, describe
from kernelwright.tools.comparing.exactness.arithmetic_kinds import ArithmeticKind
from kernelwright.tools.expected.carriers import redraw_constant_inputs
from kernelwright.tools.expected.drawn_exponents import draw_exponents
from kernelwright.tools.expected.first_runs import (
    aliased_input,
    find_random_outputs,
    inputs_before_run,
    time_in_float64,
)
from kernelwright.tools.hardware.cuda_driver import CudaOutOfMemory
from kernelwright.tools.nested import tensors_of_model
from kernelwright.tools.numerics.bits import RememberedTensor
from kernelwright.tools.numerics.tolerance import FP32_EPS, widened
from kernelwright.tools.operators.operators import sort_again, sorted_inputs
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.arithmetic import is_accurate, is_too_large_for_float64
from kernelwright.tools.references.input_distributions import (
    LIMITS,
    WITH_NAN,
    Draw,
    apply_draw,
    keep_edges,
)
from kernelwright.tools.references.magnitudes import (
    drawn_buffers,
    enlarge_integers,
    limit_powers,
    may_be_enlarged,
)
from kernelwright.tools.references.models.float64 import inputs_in_float64, model_in_float64
from kernelwright.tools.references.redrawing.domains import (
    Domain,
    DomainsKept,
    domains_of,
    watch_intervals,
)
from kernelwright.tools.references.redrawing.graded_rows import grade, inputs_without_unit
from kernelwright.tools.references.reference import Reference
from kernelwright.tools.report import InfrastructureError
from kernelwright.tools.tensor_memory import found_no_memory

if TYPE_CHECKING:
    import torch

EXACT_SECONDS = 3.0
"""A float64 run that takes longer is made once; other draws carry its tolerance."""


class DoesNotFit(InfrastructureError):
    """The problem, with the tensors that its verdict needs, does not fit into the device's free memory."""

    def __init__(self, problem: str, device: str) -> None:
        """problem: its name. The exception is made again from both arguments in another process."""
        super().__init__(problem, device)

    def __str__(self) -> str:
        problem, device = self.args
        return f"{problem} does not fit on {device}: free its memory, or use smaller sizes"


def clear_traceback(error: BaseException) -> None:
    """Clears the frames of this error's traceback and of its causes': they hold tensors for as
    long as the error is kept.
    """
    cause: BaseException | None = error
    while cause is not None:
        traceback.clear_frames(cause.__traceback__)
        cause = cause.__cause__ or cause.__context__


def out_of_memory(error: BaseException) -> bool:
    """Returns True if an error of any library means that a GPU is out of memory."""
    return isinstance(error, DoesNotFit | CudaOutOfMemory) or found_no_memory(error)


@dataclass
class ExpectedOutputs:
    """Draw of inputs (the judge's own copy) with the expected outputs."""

    inputs: list[Any]
    eager: list[Any]
    """Outputs, then inputs changed by the reference, then buffers it updates."""
    exact: list[Any] | None
    rng: int
    """Generator seed of the call, also for the candidate."""
    weights: Any
    """The model that computed the outputs."""
    draw: str = "own"
    absorbs_infinities: bool | None = None
    """Whether no sum and no product meets an infinity (exactness/absorbed_infinities.py); None before that is asked."""
    _finite: bool | None = field(default=None, init=False, repr=False)

    def finite(self) -> bool:
        """Returns True if eager's floating outputs are finite; cached."""
        if self._finite is None:
            self._finite = self._found_finite()
        return self._finite

    def _found_finite(self) -> bool:
        """Computes whether all elements are finite from their extremes, which are NaN if any
        element is.
        """
        import torch

        outputs = [
            o
            for o in self.eager
            if isinstance(o, torch.Tensor) and o.is_floating_point() and o.numel()
        ]
        pieces = [piece for o in outputs for piece in o.reshape(-1).split(1 << 27)]
        return not pieces or bool(
            torch.cat([torch.stack(torch.aminmax(widened(p))) for p in pieces]).isfinite().all()
        )

    def coarsest_eps(self) -> float:
        """Returns the distance from 1 to the next number in the coarsest type among inputs and
        weights, at least that of float32.
        """
        import torch

        tensors = [v for v in self.inputs if isinstance(v, torch.Tensor)]
        tensors += [] if self.weights is None else tensors_of_model(self.weights)
        floating = {t.dtype.to_real() for t in tensors if t.is_floating_point() or t.is_complex()}
        return max([FP32_EPS, *(float(torch.finfo(dtype).eps) for dtype in floating)])

    def special(self) -> bool:
        """Returns True if the inputs of the draw, or their outputs, hold NaN or infinities."""
        return self.draw in WITH_NAN or not self.finite()


@dataclass
class PreparedProblem:
    """Reference which was run, with the judge's knowledge of its outputs."""

    reference: Reference
    weights_seed: int
    model: torch.nn.Module
    outputs: tuple[Described, ...] = ()
    aliases: tuple[Any, ...] = ()
    """For each output, the index of the input that it is (or views) in the reference; None for others."""
    mutated: frozenset[int] = frozenset()
    """Inputs that the reference itself changes."""
    exact_seconds: float | None = None
    """Time of the reference in float64, in seconds; None if it cannot run in float64."""
    random_outputs: tuple[int, ...] = ()
    """Outputs that follow the state of torch's generators: dropout in training mode, torch.rand in forward."""
    operations: int | None = None
    """Number of operations of torch in a call; counted on a CPU only."""
    kinds: tuple[ArithmeticKind, ...] = ()
    """How each output comes about (tools/comparing/exactness/arithmetic_kinds.py)."""
    shows_rounding: bool = False
    """Eager differs from float64 at every rounding."""
    never_rounded: dict[int, bool] = field(default_factory=dict)
    """Outputs for which equality of eager and float64 on every draw was determined."""
    at_base: weakref.ref[PreparedProblem] | None = None
    """The problem at the base size from which this one was prepared; None at the base size."""
    searches: bool = False
    """Whether forward searches in sorted inputs: inputs which are sorted stay sorted in every
    draw.
    """
    exponentiates_products: bool = False
    """Exponentiates products of matrices: huge inputs then yield scores that no kernel must
    exponentiate."""
    mixes_elements: bool = True
    """Whether an element may be computed from several elements of one input, as in a sum or a scan."""
    without_unit: tuple[int, ...] | None = None
    """Positions of the inputs in which the reference is homogeneous; None before the first draw of
    numbers of two magnitudes."""
    domains: tuple[Domain, ...] = ()
    """The values that each input keeps to in every draw."""
    notes: list[str] = field(default_factory=list)
    perturbed: Any = None
    """The reference with perturbed weights, made at its first use."""

    @property
    def randomness(self) -> str:
        """Returns a line of advice about a random reference; empty if not random."""
        if not self.random_outputs:
            return ""
        return (
            f"the reference is random: output {' and '.join(map(str, self.random_outputs))} follows torch's generator, "
            "which a kernel's own random numbers cannot: put .eval() on the module, set dropout to 0, or make the "
            "random numbers an input of forward"
        )

    @property
    def is_exact(self) -> bool:
        """Whether no operator of the reference rounds."""
        return bool(self.kinds) and max(self.kinds) is ArithmeticKind.EXACT

    def kind_of(self, number: int) -> ArithmeticKind:
        """Returns the kind of arithmetic behind an output; `rounded` if unknown."""
        return self.kinds[number] if number < len(self.kinds) else ArithmeticKind.ROUNDED

    @property
    def rounds_to_half(self) -> bool:
        """True if an output has numbers of at most sixteen bits."""
        return any(
            o.dtype in ("float16", "bfloat16") or o.dtype.startswith("float8") for o in self.outputs
        )

    def input_named(self, index: int | None) -> str:
        """Returns the name of an input by its position in a draw: `input 0`, or `input 0[1]`
        inside an argument.
        """
        names = dict(enumerate(self.reference.input_names))
        return f"input {index if index is None else names.get(index, index)}"

    @property
    def beside_outputs(self) -> int:
        """Returns the number of tensors in an answer beside forward's outputs: changed inputs and
        updated buffers.
        """
        return len(self.mutated) + len(self.reference.updated)

    @functools.cached_property
    def other_buffers(self) -> dict[str, Any]:
        """Returns the buffers that each seed draws anew, by name, with the values of another seed."""
        return drawn_buffers(self.reference, self.model, self.weights_seed)


def prepare_problem(
    problem: Problem, device: str, weights_seed: int, *, like: PreparedProblem | None = None
) -> PreparedProblem:
    """Prepares a problem by running its reference, on a CPU twice, with operations counted.
    Raises ProblemError if the reference fails, and DoesNotFit.

    like: the problem at another size, whose float64 time and operations are reused.
    """
    import torch

    try:
        reference = Reference(problem, device)
        reference.sorts = None if like is None else like.reference.sorts
        prepared = PreparedProblem(reference, weights_seed, reference.model(weights_seed))
        with watch_intervals() as intervals:
            inputs = reference.inputs(1)
        held = [RememberedTensor(v) if isinstance(v, torch.Tensor) else None for v in inputs]
        prepared.domains = domains_of(inputs, intervals)
        outputs = reference.run(prepared.model, inputs, 1)
    except torch.cuda.OutOfMemoryError as error:
        raise DoesNotFit(problem.name, device) from error
    prepared.outputs = tuple(describe(o) for o in outputs)
    prepared.mutated = frozenset(
        i
        for i, (v, was) in enumerate(zip(inputs, held, strict=True))
        if was is not None and not was.is_in(v)
    )
    before = inputs_before_run(reference, inputs, held, prepared.mutated)
    prepared.aliases = tuple(aliased_input(o, inputs) for o in outputs)
    if like is None:
        find_random_outputs(prepared, before, outputs)
    else:
        prepared.at_base = weakref.ref(like)
        prepared.searches = like.searches
        prepared.exponentiates_products = like.exponentiates_products
        prepared.mixes_elements = like.mixes_elements
    if is_too_large_for_float64(device, [*before, *outputs]):
        prepared.notes.append("too large for float64: eager's own error is that of smaller sizes")
        return prepared
    if like is not None:
        prepared.exact_seconds = like.exact_seconds
        prepared.kinds = like.kinds
        prepared.shows_rounding = like.shows_rounding
        return prepared
    prepared.exact_seconds = time_in_float64(prepared, before)
    if prepared.exact_seconds is None:
        prepared.notes.append("no float64 reference: eager's own output stands in")
    return prepared


def expected_outputs(
    prepared: PreparedProblem,
    draw: Draw,
    seed: int,
    *,
    model: torch.nn.Module | None = None,
    exact: bool = True,
    edges: list[Any] | None = None,
    part: int = 0,
) -> ExpectedOutputs:
    """Draws inputs from `seed` and computes the expected outputs. The candidate never learns the
    seed.

    part: which part of a draw that takes several calls is drawn.

    edges: earlier inputs whose first and last rows and columns are kept, so that a cache keyed by
    a few elements takes the new inputs for the old ones.
    """
    limits = LIMITS.get(draw, (part,))
    model = prepared.model if model is None else model
    for limit in limits:
        expected = _expected_within(prepared, draw, seed, model, edges, limit)
        expected.exact = float64_outputs(prepared, expected) if exact else None
        if len(limits) == 1 or (expected.finite() and is_accurate(expected.eager, expected.exact)):
            break
    return expected


def _expected_within(
    prepared: PreparedProblem, draw: Draw, seed: int, model: torch.nn.Module, edges: list[Any] | None, limit: int,
) -> ExpectedOutputs:  # fmt: skip
    """Returns the expected outputs without float64's. limit: largest exponent of a draw in LIMITS,
    otherwise the part."""
    import torch

    reference = prepared.reference
    inputs = reference.inputs(seed)
    in_order = sorted_inputs(inputs) if prepared.searches else ()
    domains = DomainsKept(inputs, prepared.domains)
    apply_draw(draw, inputs, limit)
    domains.restore()
    if draw is Draw.REDRAWN:
        redraw_constant_inputs(prepared, model, inputs, seed)
    if (
        draw is Draw.LARGE
        and not any(True for _ in model.state_dict())
        and may_be_enlarged(reference, model, inputs)
    ):
        enlarge_integers(inputs)
    if draw in (Draw.INFINITE, Draw.SCALED) and prepared.exponentiates_products:
        limit_powers(inputs)
    if draw is Draw.EXPONENTS:
        draw_exponents(
            inputs,
            limit,
            lambda drawn: _answer(prepared, model, drawn, seed),
            with_subnormal=prepared.is_exact,
        )
        domains.restore()
    if draw is Draw.GRADED:
        if prepared.without_unit is None:
            prepared.without_unit = inputs_without_unit(
                inputs, lambda drawn: _answer(prepared, model, drawn, seed)
            )
        grade([inputs[position] for position in prepared.without_unit], limit)
        domains.restore()
    if edges is not None:
        keep_edges(inputs, edges)
    sort_again(inputs, in_order)
    rng = seed & 0x7FFFFFFF
    arguments = [
        v.clone() if i in prepared.mutated and isinstance(v, torch.Tensor) else v
        for i, v in enumerate(inputs)
    ]
    return ExpectedOutputs(
        inputs, _answer(prepared, model, arguments, rng), None, rng, model, str(draw)
    )


def _answer(
    prepared: PreparedProblem, model: torch.nn.Module, inputs: list[Any], rng: int
) -> list[Any]:
    """Returns the outputs, then the inputs changed by forward, then the contents of the updated
    buffers.
    """
    updated_buffers: list[Any] = []
    outputs: list[Any] = prepared.reference.run(model, inputs, rng, updated_buffers)
    return [*outputs, *(inputs[i] for i in sorted(prepared.mutated)), *updated_buffers]


def float64_outputs(prepared: PreparedProblem, expected: ExpectedOutputs) -> list[Any] | None:
    """Returns the outputs of the draw in float64; None if not computable."""
    import torch

    if prepared.exact_seconds is None:
        return None
    copies = [
        v.clone() if i in prepared.mutated and isinstance(v, torch.Tensor) else v
        for i, v in enumerate(inputs_in_float64(expected.inputs))
    ]
    return _answer(prepared, model_in_float64(expected.weights), copies, expected.rng)


def run_on(
    prepared: PreparedProblem, expected: ExpectedOutputs, model: torch.nn.Module, inputs: list[Any]
) -> list[Any]:
    """Returns outputs, changed inputs (copies of the arguments), and updated buffers of a run."""
    import torch

    arguments = [
        v.clone() if i in prepared.mutated and isinstance(v, torch.Tensor) else v
        for i, v in enumerate(inputs)
    ]
    return _answer(prepared, model, arguments, expected.rng)


def tensors_of_run(expected: ExpectedOutputs) -> list[Any]:
    """Returns all tensors read when a draw's reference is run again, or its outputs are compared
    with float64's.
    """
    return [*expected.inputs, *(expected.exact or ()), *tensors_of_model(expected.weights)]
