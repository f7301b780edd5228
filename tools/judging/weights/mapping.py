"""Maps the tensors of a candidate to the weights of the reference: by name and shape, by order, or
by value.

A candidate may name, concatenate, transpose or cast its weights freely. If names do not match, the
reference's values do: both sides draw from the same seed, so each weight of the reference must
occur, bit for bit, in a tensor made by the candidate's set-up. That tensor, or part of it, is added
to the trace as a state tensor, into which the judge loads other values.

Example: the reference holds `q.weight` and `k.weight`, the candidate `self.qk =
torch.cat([q.weight, k.weight])`. The set-up draws tensors 3 and 5 and concatenates them; 3 and 5
become the state tensors `q.weight` and `k.weight`, and the concatenation is repeated with the
values that the judge loads.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from kernelwright.tools.expected.prepared_problem import PreparedProblem
from kernelwright.tools.expected.weights import (
    Position,
    match_by_name,
    match_by_order,
    weights_of,
)
from kernelwright.tools.judging.state import buffers_of, listed_state
from kernelwright.tools.trace.shared_memory import SharedMemory, numbers_of, written_by
from kernelwright.tools.trace.trace import Operator, Step, Trace, Traced, all_steps, tensors_in

_POSITIONS = TypeAdapter(dict[str, tuple[int, tuple[int, ...], int, bool]])


def map_by_name(prepared: PreparedProblem, trace: Trace) -> dict[str, str]:
    """Candidate's name -> reference's name of parameters and buffers, as far as names and shapes tell."""
    names = match_by_name(prepared.model, listed_state(trace))
    return {**names, **buffers_of(prepared.model, trace, names)}


def map_by_order(prepared: PreparedProblem, trace: Trace) -> dict[str, str]:
    """Candidate's name -> reference's name of all parameters in their order, and of buffers; empty where that does not
    give every weight.
    """
    names = match_by_order(prepared.model, listed_state(trace))
    names = {**names, **buffers_of(prepared.model, trace, names)}
    return {} if missing_weights(prepared, names.values()) else names


def missing_weights(prepared: PreparedProblem, mapped: Collection[str]) -> tuple[str, ...]:
    """Returns the names of the reference's weights that are not among the mapped ones."""
    return tuple(name for name in weights_of(prepared) if name not in mapped)


def read_positions(answer: Any, trace: Trace) -> dict[str, Position]:
    """Returns what a replayer says of where weights lie, without what is no position in a tensor of the set-up."""
    numbers = {n for step in all_steps(trace.setup) for n in numbers_of(step)[1]}
    try:
        positions = {
            n: Position(*entry)
            for n, entry in _POSITIONS.validate_python(answer, strict=False).items()
        }
    except ValidationError:
        return {}
    return {name: position for name, position in positions.items() if position.tensor in numbers}


def with_positions(
    traced: Traced, index: int, positions: Mapping[str, Position], weights: Mapping[str, Any]
) -> tuple[Traced, dict[str, str]]:
    """Returns the trace with one more state tensor for each weight that was located by its values, and the names that
    these have there: candidate's name -> reference's name.
    """
    trace = traced.traces[index]
    assert trace is not None
    names: dict[str, str] = {}
    for reference_name, position in positions.items():
        name = _name_of(trace, reference_name, position)
        names[name] = reference_name
        trace = _with_state(trace, name, position, weights[reference_name])
    traces = (*traced.traces[:index], trace, *traced.traces[index + 1 :])
    return traced.model_copy(update={"traces": traces}), names


def _name_of(trace: Trace, reference_name: str, position: Position) -> str:
    """Returns the candidate's own name of a tensor, else the reference's, changed where the candidate uses it for
    another one.
    """
    if position.whole:
        candidate_name = next(
            (name for name, number in trace.state.items() if number == position.tensor), None
        )
        if candidate_name is not None:
            return candidate_name
    return f"{reference_name} (by value)" if reference_name in trace.state else reference_name


def _with_state(trace: Trace, name: str, position: Position, weight: Any) -> Trace:
    """Returns the trace with the tensor, or the part of it, as a state tensor."""
    number = position.tensor
    setup = trace.setup
    if not position.whole:
        number = 3 + _largest_number(trace)
        setup = (*_with_view(trace.setup, position, number, list(weight.shape)),)
    dtype = str(weight.dtype).removeprefix("torch.")
    return trace.model_copy(update={
        "state": {**trace.state, name: number},
        "shapes": {**trace.shapes, name: tuple(weight.shape)},
        "dtypes": {**trace.dtypes, name: dtype},
        "setup": setup,
    })  # fmt: skip


def _largest_number(trace: Trace) -> int:
    steps = [*all_steps(trace.setup), *all_steps(trace.first), *all_steps(trace.later or ())]
    numbers = (n for step in steps for both in numbers_of(step) for n in both)
    return max(
        [
            *numbers,
            *trace.state.values(),
            *tensors_in(trace.inputs),
            *tensors_in(trace.later_inputs),
        ]
    )


def _with_view(
    setup: Sequence[Step], position: Position, number: int, shape: list[int]
) -> list[Step]:
    """Returns the set-up with views that end in that part, after the last step that writes to the tensor. number: of
    that part; the two before it are free.
    """
    memory = SharedMemory(setup, ())
    storage = memory.storage(position.tensor)

    def writes(step: Step) -> bool:
        inner = list(all_steps([step]))
        return any(
            memory.storage(n) == storage for s in inner for n in (*written_by(s), *numbers_of(s)[1])
        )

    last = max(index for index, step in enumerate(setup) if writes(step))
    flat = number - 2
    tail = number - 1
    views = [
        Operator(op="aten.view.default", args=({"t": position.tensor}, [-1]), out={"t": flat}),
        Operator(op="aten.slice.Tensor", args=({"t": flat}, 0, position.offset), out={"t": tail}),
        Operator(
            op="aten.as_strided.default",
            args=({"t": tail}, shape, list(position.stride)),
            out={"t": number},
        ),
    ]
    return [*setup[: last + 1], *views, *setup[last + 1 :]]
