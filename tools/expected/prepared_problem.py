"""A problem that is prepared on one device: the reference models, the form of its outputs, and the inputs that it
changes. It is prepared once and used for every candidate.
"""

from __future__ import annotations

import functools
import time
import traceback
import weakref
from dataclasses import dataclass, field
from typing import Any

from kernelwright.tools.comparing.comparison import Described, describe
from kernelwright.tools.comparing.exactness.arithmetic_kinds import ArithmeticKind
from kernelwright.tools.expected.carriers import redraw_constant_inputs
from kernelwright.tools.hardware.cuda_driver import CudaOutOfMemory
from kernelwright.tools.nested import tensors_of_model
from kernelwright.tools.numerics.bits import RememberedTensor, same_bits
from kernelwright.tools.numerics.tolerance import FP32_EPS, widened
from kernelwright.tools.operators.operators import sort_again, sorted_inputs
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.arithmetic import is_accurate, is_too_large_for_float64
from kernelwright.tools.references.input_distributions import LIMITS, Draw, apply_draw, keep_edges
from kernelwright.tools.references.magnitudes import (
    drawn_buffers,
    enlarge_integers,
    limit_powers,
    may_be_enlarged,
)
from kernelwright.tools.references.redrawing.domains import (
    Domain,
    DomainsKept,
    domains_of,
    watch_intervals,
)
from kernelwright.tools.references.reference import Reference, inputs_in_float64, model_in_float64
from kernelwright.tools.report import InfrastructureError
from kernelwright.tools.tensor_memory import found_no_memory

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
    """Clears the frames of this error's traceback and of its causes': they hold tensors for as long as the error is
    kept.
    """
    one: BaseException | None = error
    while one is not None:
        traceback.clear_frames(one.__traceback__)
        one = one.__cause__ or one.__context__


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that a GPU is out of memory, whichever library raised it."""
    return isinstance(error, DoesNotFit | CudaOutOfMemory) or found_no_memory(error)


@dataclass
class ExpectedOutputs:
    """One draw: the judge's own copy of the inputs, and the expected outputs."""

    inputs: list[Any]
    eager: list[Any]
    """Outputs, then inputs that the reference changes, then the buffers that it updates."""
    exact: list[Any] | None
    rng: int
    """Generator seed of the call: the candidate's is set to it too."""
    weights: Any
    """The model that made it."""
    draw: str = "own"
    _finite: bool | None = field(default=None, init=False, repr=False)

    def finite(self) -> bool:
        """Whether eager's floating outputs are; looked at once."""
        if self._finite is None:
            self._finite = self._found_finite()
        return self._finite

    def _found_finite(self) -> bool:
        """As their extremes are, which are NaN where any element is."""
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
        """Returns the distance from 1 to the next number in the coarsest type among inputs and weights; that of float32
        where all are finer.
        """
        import torch

        tensors = [v for v in self.inputs if isinstance(v, torch.Tensor)]
        tensors += [] if self.weights is None else tensors_of_model(self.weights)
        floating = {t.dtype.to_real() for t in tensors if t.is_floating_point() or t.is_complex()}
        return max([FP32_EPS, *(float(torch.finfo(dtype).eps) for dtype in floating)])

    def special(self) -> bool:
        """Whether the inputs of the draw, or the outputs for them, hold NaN or infinities."""
        return self.draw == Draw.NAN or not self.finite()


@dataclass
class PreparedProblem:
    """A reference that was run, with what the judge has to know of its outputs."""

    reference: Reference
    weights_seed: int
    model: Any
    outputs: tuple[Described, ...] = ()
    aliases: tuple[Any, ...] = ()
    """For each output, the index of the input that it is (or views) in the reference; None for others."""
    mutated: frozenset[int] = frozenset()
    """Inputs that the reference itself changes."""
    own_finite: bool = True
    exact_seconds: float | None = None
    """Seconds that the reference takes in float64; None where it does not run in float64."""
    random_outputs: tuple[int, ...] = ()
    """Outputs that follow the state of torch's generators: dropout in training mode, torch.rand in forward."""
    operations: int | None = None
    """Operations that the reference asks of torch in one call; counted on a CPU only."""
    kinds: tuple[ArithmeticKind, ...] = ()
    """How each output comes about (tools/comparing/exactness/arithmetic_kinds.py)."""
    shows_rounding: bool = False
    """Whether eager differs from float64 wherever it rounds."""
    never_rounded: dict[int, bool] = field(default_factory=dict)
    """Outputs of which it was tried whether eager is float64's on every draw."""
    at_base: weakref.ref[PreparedProblem] | None = None
    """The problem at the size after which this one was prepared; None at that size itself."""
    searches: bool = False
    """Whether it searches in what has to be sorted: inputs that are so stay so in every draw."""
    exponentiates_products: bool = False
    """Whether it exponentiates products of matrices: huge inputs then make scores that no kernel need exponentiate."""
    domains: tuple[Domain, ...] = ()
    """The values that each input keeps to in every draw."""
    notes: list[str] = field(default_factory=list)
    perturbed: Any = None
    """The reference with perturbed weights, made at its first use."""

    @property
    def randomness(self) -> str:
        """Returns one line about a random reference, which says what to do; empty where it is not random."""
        if not self.random_outputs:
            return ""
        return (
            f"the reference is random: output {' and '.join(map(str, self.random_outputs))} follows torch's generator, "
            "which a kernel's own random numbers cannot: put .eval() on the module, set dropout to 0, or make the "
            "random numbers an input of forward"
        )

    def kind_of(self, number: int) -> ArithmeticKind:
        """Returns how an output comes about: rounded, where that was not looked at."""
        return self.kinds[number] if number < len(self.kinds) else ArithmeticKind.ROUNDED

    @property
    def rounds_to_half(self) -> bool:
        """Whether an output has numbers of sixteen bits or fewer."""
        return any(
            o.dtype in ("float16", "bfloat16") or o.dtype.startswith("float8") for o in self.outputs
        )

    def input_named(self, index: int | None) -> str:
        """Returns the name of an input by its place in a draw: `input 0`, or `input 0[1]` for one inside of an
        argument.
        """
        names = dict(enumerate(self.reference.input_names))
        return f"input {index if index is None else names.get(index, index)}"

    @property
    def beside_outputs(self) -> int:
        """Returns the number of tensors of an answer that are no outputs of forward: inputs that it changes, buffers
        that it updates.
        """
        return len(self.mutated) + len(self.reference.updated)

    @functools.cached_property
    def other_buffers(self) -> dict[str, Any]:
        """Returns the buffers that each seed draws anew, by name, with the values of another seed."""
        return drawn_buffers(self.reference, self.model, self.weights_seed)


def prepare_problem(
    problem: Problem, device: str, weights_seed: int, *, like: PreparedProblem | None = None
) -> PreparedProblem:
    """Prepares a problem by running its reference, on a CPU twice, with operations counted. Raises ProblemError where
    the reference fails, and DoesNotFit.

    like: the same problem at another size, whose float64 time and operations are taken for this one's.
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
    before = _as_drawn(reference, inputs, held, prepared.mutated)
    prepared.aliases = tuple(_input_of(o, inputs) for o in outputs)
    if like is None:
        _find_random_outputs(prepared, before, outputs)
    else:
        prepared.at_base = weakref.ref(like)
        prepared.searches, prepared.exponentiates_products = (
            like.searches,
            like.exponentiates_products,
        )
    if is_too_large_for_float64(device, [*before, *outputs]):
        prepared.notes.append("too large for float64: eager's own error is that of smaller sizes")
        return prepared
    if like is not None:
        prepared.exact_seconds, prepared.kinds = like.exact_seconds, like.kinds
        prepared.shows_rounding = like.shows_rounding
        return prepared
    prepared.exact_seconds = _time_exact(prepared, before)
    if prepared.exact_seconds is None:
        prepared.notes.append("no float64 reference: eager's own output stands in")
    return prepared


def _as_drawn(
    reference: Reference, inputs: list[Any], held: list[Any], mutated: frozenset[int]
) -> list[Any]:
    """The inputs as they were before the reference changed some of them; a large one of those is drawn once more."""
    if not mutated:
        return inputs
    again = reference.inputs(1) if any(held[i].copy is None for i in mutated) else inputs
    return [
        v if i not in mutated else again[i] if held[i].copy is None else held[i].copy
        for i, v in enumerate(inputs)
    ]


def _find_random_outputs(prepared: PreparedProblem, given: list[Any], outputs: list[Any]) -> None:
    """Notes the outputs that differ between two runs with different states of the generators on the same inputs. A
    third run, in the first state, must agree with the first: where it does not, the reference is not deterministic in
    other ways, and nothing is said. The second run is the one whose operations are counted.
    """
    import torch

    from kernelwright.tools.comparing.exactness.kind_tracker import KindTracker
    from kernelwright.tools.operators.operators import count_operations

    def copied() -> list[Any]:
        return [
            v.clone() if i in prepared.mutated and isinstance(v, torch.Tensor) else v
            for i, v in enumerate(given)
        ]

    def run(rng: int, inputs: list[Any]) -> list[Any]:
        return prepared.reference.run(prepared.model, inputs, rng)

    found: list[list[Any]] = []
    try:
        worked = copied()
        tracker = KindTracker([*worked, *tensors_of_model(prepared.model)])
        with tracker:
            counted = count_operations(lambda: found.append(run(2, worked)))
        prepared.searches, prepared.exponentiates_products = (
            counted.searches,
            counted.exponentiates_products,
        )
        prepared.reference.sorts = counted.sorts
        changed = [worked[i] for i in sorted(prepared.mutated)]
        prepared.shows_rounding = not tracker.hides_rounding
        prepared.kinds = tuple(tracker.kind_of(o) for o in [*found[0], *changed])
        if prepared.reference.device == "cpu":
            prepared.operations = counted.operations
        moved = _differing(outputs, found[0])
        if not moved or _differing(outputs, run(1, copied())):
            return
    except torch.cuda.OutOfMemoryError:
        return
    prepared.random_outputs = moved
    prepared.notes.append(prepared.randomness)


def _differing(ones: list[Any], others: list[Any]) -> tuple[int, ...]:
    """Places at which two lists of outputs are not the same, bit for bit."""
    import torch

    return tuple(
        place
        for place, (one, other) in enumerate(zip(ones, others, strict=True))
        if (
            not same_bits(one, other)
            if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)
            else False
        )
    )


def _input_of(output: Any, inputs: list[Any]) -> int | None:
    import torch

    for index, tensor in enumerate(inputs):
        if (
            isinstance(tensor, torch.Tensor)
            and isinstance(output, torch.Tensor)
            and tensor.numel()
            and output.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()
        ):
            return index
    return None


def _time_exact(prepared: PreparedProblem, inputs: list[Any]) -> float | None:
    import torch

    try:
        start = time.monotonic()
        prepared.reference.run(model_in_float64(prepared.model), inputs_in_float64(inputs), 1)
        if prepared.reference.device != "cpu":
            torch.cuda.synchronize()
        return time.monotonic() - start
    except (RuntimeError, ValueError, TypeError, torch.cuda.OutOfMemoryError):
        return None


def expected_outputs(
    prepared: PreparedProblem,
    draw: Draw,
    seed: int,
    *,
    model: Any = None,
    exact: bool = True,
    edges: list[Any] | None = None,
) -> ExpectedOutputs:
    """Draws inputs from `seed` and computes what should come of them. The candidate never learns the seed.

    edges: earlier inputs whose first and last rows and columns are kept, so that a fingerprint of a few elements does
    not see that the rest is new.
    """
    limits = LIMITS.get(draw, (0,))
    model = prepared.model if model is None else model
    for limit in limits:
        expected = _expected_within(prepared, draw, seed, model, edges, limit)
        expected.exact = float64_outputs(prepared, expected) if exact else None
        if len(limits) == 1 or (expected.finite() and is_accurate(expected.eager, expected.exact)):
            break
    return expected


def _expected_within(
    prepared: PreparedProblem, draw: Draw, seed: int, model: Any, edges: list[Any] | None, limit: int,
) -> ExpectedOutputs:  # fmt: skip
    """The expected outputs without float64's. limit: of a draw in LIMITS, its largest exponent."""
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
    if draw in (Draw.INFINITE, Draw.SCALED, Draw.SPREAD) and prepared.exponentiates_products:
        limit_powers(inputs)
    if edges is not None:
        keep_edges(inputs, edges)
    sort_again(inputs, in_order)
    rng = seed & 0x7FFFFFFF
    given = [
        v.clone() if i in prepared.mutated and isinstance(v, torch.Tensor) else v
        for i, v in enumerate(inputs)
    ]
    return ExpectedOutputs(
        inputs, _answer(prepared, model, given, rng), None, rng, model, str(draw)
    )


def _answer(prepared: PreparedProblem, model: Any, given: list[Any], rng: int) -> list[Any]:
    """Returns the outputs, then the inputs that the reference changes, then the contents of the buffers that it
    updates.
    """
    left: list[Any] = []
    outputs: list[Any] = prepared.reference.run(model, given, rng, left)
    return [*outputs, *(given[i] for i in sorted(prepared.mutated)), *left]


def float64_outputs(prepared: PreparedProblem, expected: ExpectedOutputs) -> list[Any] | None:
    """Returns the outputs of the same draw in float64; None where the reference cannot be computed in float64."""
    import torch

    if prepared.exact_seconds is None:
        return None
    copies = [
        v.clone() if i in prepared.mutated and isinstance(v, torch.Tensor) else v
        for i, v in enumerate(inputs_in_float64(expected.inputs))
    ]
    return _answer(prepared, model_in_float64(expected.weights), copies, expected.rng)


def run_on(
    prepared: PreparedProblem, expected: ExpectedOutputs, model: Any, inputs: list[Any]
) -> list[Any]:
    """Outputs, then the inputs that the reference changes (copies of those given), then the buffers that it updates."""
    import torch

    given = [
        v.clone() if i in prepared.mutated and isinstance(v, torch.Tensor) else v
        for i, v in enumerate(inputs)
    ]
    return _answer(prepared, model, given, expected.rng)


def tensors_of_run(expected: ExpectedOutputs) -> list[Any]:
    """Returns all that is read where a draw's reference is run again, or its outputs are compared with float64's."""
    return [*expected.inputs, *(expected.exact or ()), *tensors_of_model(expected.weights)]
