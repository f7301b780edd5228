"""Derives the contract of a kernel from the sizes at which a verdict was correct, and from its
reference.

The inputs are described at every judged size and compared position by position: a value equal at
all sizes is fixed, and an extent that varies gets the name of a size (size_names.py).

    judged sizes     {"rows": 5}    {"rows": 181}    {} (the problem: 1024)
    x                (5, 64)        (181, 64)        (1024, 64)                -> ("rows", 64)
    eps              1e-05          1e-05            1e-05                     -> fixed 1e-05
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from kernelwright.agent.contracts.contract import (
    INT32_ELEMENTS,
    AnyContract,
    Argument,
    Contract,
    FixedContract,
    ItemsContract,
    OpenContract,
    Output,
    SizeContract,
    TensorContract,
    Weight,
)
from kernelwright.agent.contracts.reference_facts import (
    ReferenceFacts,
    SignatureParameter,
    facts_of,
    literal,
)
from kernelwright.agent.contracts.size_names import Row, SizeNames
from kernelwright.tools.problem import Problem, ProblemError, module_integers
from kernelwright.tools.reference_trials.trials import reference_trials
from kernelwright.tools.references.input_spec import InputSpec, input_spec
from kernelwright.tools.report import CorrectnessResult, Report, SizeOutcome
from kernelwright.tools.shapes.judged_shapes import judged_shapes, problem_to_judge

MAX_BYTES_TO_RUN = 1 << 26
"""Maximum bytes of inputs and weights for running a reference on the CPU."""

Leaves = tuple[Any, ...]
"""An argument, or a part of it, at each size: descriptions in the format of tools/wire.py."""


def contract_of(problem: Problem, report: Report) -> Contract:
    """Returns the contract of a correct kernel. The reference runs in a separate process.

    Raises ProblemError if the reference fails, and InfrastructureError if no process starts.
    """
    arguments: dict[str, JsonValue] = {"report": report.model_dump(mode="json")}
    contract = reference_trials().run(f"{__name__}:derive_here", problem, arguments)
    return Contract.model_validate(contract)


def derive_here(problem: Problem, report: JsonValue) -> JsonValue:
    """Entry point in the reference process: returns the contract as JSON."""
    return derived_contract(problem, Report.model_validate(report)).model_dump(mode="json")


@dataclass(frozen=True)
class JudgedCalls:
    """Calls with which a kernel was judged at a single shape."""

    problem: Problem
    specs: tuple[InputSpec, ...]
    """Inputs at each judged size, then at the problem's own sizes."""
    cast: str = ""
    """Dtype to which the module was cast; empty for no cast."""

    @property
    def form(self) -> str:
        """Text that is equal for calls of equal nesting, ranks and dtypes."""
        spec = self.specs[0]
        return repr((self.cast, form_of([spec.init, spec.inputs])))

    @property
    def ran(self) -> tuple[bool, ...]:
        """Whether each size was run; the problem's own is last, and may be compiled only."""
        # Empty sizes are the problem's own: if among the judged sizes, the last value was run, too.
        ran_own = any(not spec.sizes for spec in self.specs[:-1])
        return (*(True for _ in self.specs[:-1]), ran_own)


def derived_contract(problem: Problem, report: Report) -> Contract:
    """Returns the contract of a correct kernel. Runs the reference in this process.

    A kernel that was judged at several shapes has a contract for each form of its calls: the first shape's, with the
    others in `others`.
    """
    judged: list[JudgedCalls] = []
    shapes = judged_shapes(problem)
    for shape, verdict in zip(shapes, report.shapes, strict=False):
        at_shape = problem_to_judge(problem, shape)
        specs = tuple(judged_specs(at_shape, verdict.report))
        judged.append(JudgedCalls(problem=at_shape, specs=specs, cast=shape.dtype))
    if not judged:
        judged.append(JudgedCalls(problem=problem, specs=tuple(judged_specs(problem, report))))
    groups: dict[str, list[JudgedCalls]] = {}
    for calls in judged:
        groups.setdefault(calls.form, []).append(calls)
    first, *others = [_contract_of_calls(group) for group in groups.values()]
    return first.with_(others=tuple(others))


def _contract_of_calls(judged: Sequence[JudgedCalls]) -> Contract:
    """Returns the contract of calls of a single form."""
    problem, cast = judged[0].problem, judged[0].cast
    specs = [spec for calls in judged for spec in calls.specs]
    ran = [was_run for calls in judged for was_run in calls.ran]
    facts = facts_of(problem, _small_sizes(problem, judged[0].specs))
    constructor = _columns([spec.init for spec in specs])
    inputs = _columns([spec.inputs for spec in specs])
    constructor_names = _names(facts.constructor, len(constructor))
    input_names = _names(facts.forward, len(inputs))
    columns = [
        *zip(constructor_names, constructor, strict=True),
        *zip(input_names, inputs, strict=True),
    ]
    # Names are given to rows in the order constructor, inputs: the first occurrence names a size.
    rows: list[tuple[str, Row]] = []
    for name, leaves in columns:
        rows += _rows(name, leaves)
    sizes = SizeNames(rows, _problem_sizes(specs))
    return Contract(
        inputs=tuple(_arguments(input_names, inputs, facts.forward, sizes, facts.written)),
        constructor=tuple(_arguments(constructor_names, constructor, facts.constructor, sizes, ())),
        outputs=_outputs(specs, facts, sizes),
        weights=_weights(specs, sizes),
        run_sizes={name: _run_values(row, ran) for name, row in sizes.rows.items()},
        own_sizes={name: row[-1] for name, row in sizes.rows.items()},
        shape_sizes={name: _own_values(row, judged) for name, row in sizes.rows.items()},
        relations=sizes.relations(),
        mode=facts.mode,
        max_elements=max(INT32_ELEMENTS, *(_largest(spec) for spec in specs)),
        cast=cast,
        empty_sizes=tuple(name for name, row in sizes.rows.items() if 0 in _run_values(row, ran)),
    )


def _columns(tables: Sequence[Sequence[Any]]) -> list[Leaves]:
    """Transposes a table of arguments per size into columns of values per argument."""
    return list(zip(*tables, strict=True))


def _names(parameters: Sequence[SignatureParameter], count: int) -> list[str]:
    """Returns names for `count` passed arguments, numbered beyond the signature's parameters."""
    names = [parameter.name for parameter in parameters[:count]]
    return names + [f"argument_{index}" for index in range(len(names), count)]


def judged_sizes(report: Report) -> list[dict[str, int]]:
    """Returns the distinct sizes at which a kernel ran correctly, as replacements of a problem's
    integers.
    """
    sizes: list[dict[str, int]] = []
    for stage in (report.correctness, report.interpreted):
        if stage is not None and stage.passed:
            sizes += [size for size in _sizes_of(stage) if size not in sizes]
    return sizes


def _sizes_of(stage: CorrectnessResult) -> list[dict[str, int]]:
    """Returns the sizes that a stage ran correctly; older reports list only the largest."""
    tried = [trial.sizes for trial in stage.tried if trial.outcome is SizeOutcome.RIGHT]
    return tried or [stage.sizes]


def judged_specs(problem: Problem, report: Report) -> list[InputSpec]:
    """Returns input descriptions for each judged size and for the problem's sizes, at which the
    kernel was compiled.

    Sizes with another nesting of arguments than the first are omitted, because columns must be
    comparable.
    """
    specs: list[InputSpec] = []
    for sizes in [*judged_sizes(report), {}]:
        try:
            spec = input_spec(problem, sizes)
        except ProblemError:
            if not sizes and not specs:
                raise
            continue
        form = form_of([spec.init, spec.inputs])
        if not specs or form == form_of([specs[0].init, specs[0].inputs]):
            specs.append(spec)
    return specs


def form_of(tree: object) -> object:
    """Returns the nesting of a description, with the rank and dtype of each tensor."""
    if isinstance(tree, list):
        return [form_of(element) for element in tree]
    if isinstance(tree, dict) and "tensor" in tree:
        return len(tree["tensor"]["shape"]), tree["tensor"]["dtype"]
    if isinstance(tree, dict):
        return {key: form_of(entry) for key, entry in tree.items()}
    return type(tree).__name__


def _small_sizes(problem: Problem, specs: Sequence[InputSpec]) -> dict[str, int]:
    """Returns the cheapest sizes for running the reference: the smallest judged sizes, or sizes
    small enough for the interpreter.
    """
    # Facts such as modes and in-place writes do not depend on the sizes.
    smallest = min(specs, key=lambda spec: spec.bytes)
    if smallest.bytes <= MAX_BYTES_TO_RUN:
        return smallest.sizes
    from kernelwright.tools.references.small_sizes import shrink

    return shrink(problem).sizes


def _problem_sizes(specs: Sequence[InputSpec]) -> dict[str, Row]:
    """Returns the values of the problem's module-level integers at each size."""
    tables: list[dict[str, int]] = []
    for spec in specs:
        assert spec.problem is not None
        tables.append(module_integers(spec.problem.with_sizes(spec.sizes).source))
    rows: dict[str, Row] = {}
    for name in tables[0]:
        if all(name in table for table in tables):
            rows[name] = tuple(table[name] for table in tables)
    return rows


def _rows(name: str, leaves: Leaves) -> Iterator[tuple[str, Row]]:
    """Yields the values of each extent and integer of an argument, with a default name."""
    first = leaves[0]
    if isinstance(first, dict) and "tensor" in first:
        for index in range(len(first["tensor"]["shape"])):
            yield f"{name}_dim{index}", tuple(leaf["tensor"]["shape"][index] for leaf in leaves)
    elif isinstance(first, int) and not isinstance(first, bool):
        yield name, leaves
    else:
        for key, items in _items(leaves):
            yield from _rows(f"{name}_{key}", items)


def _items(leaves: Leaves) -> Iterator[tuple[str, Leaves]]:
    """Yields the entries of a container with their keys; nothing for plain values."""
    bodies = [_body(leaf) for leaf in leaves]
    first = bodies[0]
    keys: Sequence[Any] = ()
    if isinstance(first, dict):
        keys = list(first)
    elif first is not None:
        keys = range(len(first))
    for key in keys:
        yield str(key), tuple(body[key] for body in bodies)


def _body(leaf: object) -> Any:
    """Returns the entries of a described list, tuple or dictionary; None for a plain value."""
    if isinstance(leaf, list):
        return leaf
    return leaf.get("tuple", leaf.get("dict")) if isinstance(leaf, dict) else None


def _arguments(
    names: Sequence[str], columns: Sequence[Leaves], parameters: Sequence[SignatureParameter], sizes: SizeNames,
    written: Sequence[str],
) -> Iterator[Argument]:  # fmt: skip
    """Yields the passed arguments in order, then the arguments left at their defaults."""
    defaults = {parameter.name: parameter.default for parameter in parameters}
    for index, (name, leaves) in enumerate(zip(names, columns, strict=True)):
        contract = _contract(leaves, sizes, str(index), written)
        yield Argument(name=name, contract=contract, default=defaults.get(name))
    for parameter in parameters[len(columns) :]:
        if parameter.default is not None and parameter.name not in names:
            fixed = FixedContract(literal=parameter.default)
            yield Argument(
                name=parameter.name, contract=fixed, default=parameter.default, passed=False
            )


def _contract(leaves: Leaves, sizes: SizeNames, index: str, written: Sequence[str]) -> AnyContract:
    """Returns the contract of an argument from its descriptions at every size."""
    first = leaves[0]
    if isinstance(first, dict) and "tensor" in first:
        return _tensor_contract(leaves, sizes, index in written)
    if isinstance(first, int) and not isinstance(first, bool):
        named = sizes.name(leaves)
        if isinstance(named, str):
            return SizeContract(size=named)
        return FixedContract(literal=repr(named))
    if _body(first) is not None:
        entries = list(_items(leaves))
        items: list[AnyContract] = []
        for key, part in entries:
            items.append(_contract(part, sizes, f"{index}[{key}]", written))
        kind = "list" if isinstance(first, list) else next(iter(first))
        keys = tuple(key for key, _ in entries) if kind == "dict" else ()
        return ItemsContract(kind=kind, keys=keys, items=tuple(items))
    return _plain_contract(leaves)


def _plain_contract(leaves: Leaves) -> AnyContract:
    first = leaves[0]
    if any(leaf != first for leaf in leaves):
        return OpenContract(shown=f"any {type(first).__name__}")
    if not isinstance(first, dict):
        return FixedContract(literal=literal(first) or repr(first))
    (tag, text), *_ = first.items()
    match tag:
        case "dtype":
            return FixedContract(literal=f"torch.{text}")
        case "float":
            return FixedContract(literal=f"float({text!r})")
    return OpenContract(shown=f"any {tag}")


def _tensor_contract(leaves: Leaves, sizes: SizeNames, written: bool) -> TensorContract:
    shapes = [tuple(leaf["tensor"]["shape"]) for leaf in leaves]
    strides = [tuple(leaf["tensor"]["stride"]) for leaf in leaves]
    rows = list(zip(*shapes, strict=True))
    order = _order(shapes, strides)
    layouts = dict.fromkeys(zip(shapes, strides, strict=True)) if order is None else ()
    return TensorContract(
        dtype=leaves[0]["tensor"]["dtype"],
        shape=tuple(map(sizes.name, rows)),
        order=tuple(range(len(rows))) if order is None else order,
        layouts=tuple(layouts),
        written=written,
    )


def _order(shapes: Sequence[Row], strides: Sequence[Row]) -> tuple[int, ...] | None:
    """Returns the memory order of dimensions valid at every size; None for tensors with gaps or
    overlaps.
    """
    # Candidates: torch's default order, then the order of descending strides.
    usual = tuple(range(len(strides[0])))
    by_stride = sorted(usual, key=lambda k: strides[0][k], reverse=True)
    for order in (usual, tuple(by_stride)):
        if all(map(_is_dense, shapes, strides, [order] * len(shapes))):
            return order
    return None


def _is_dense(shape: Row, strides: Row, order: Sequence[int]) -> bool:
    """Returns whether a tensor in this memory order has neither gaps nor overlaps.

    Strides of dimensions of extent 1, and of tensors without elements, are arbitrary in torch and are ignored.
    """
    step = 1
    if 0 in shape:
        return True
    for index in reversed(order):
        if shape[index] != 1 and strides[index] != step:
            return False
        step *= shape[index]
    return True


def _outputs(
    specs: Sequence[InputSpec], facts: ReferenceFacts, sizes: SizeNames
) -> tuple[Output, ...]:
    outputs: list[Output] = []
    for index, first in enumerate(specs[0].outputs):
        shapes = [spec.outputs[index].shape for spec in specs if index < len(spec.outputs)]
        # The shape is described only if the output exists with equal rank at every size.
        is_comparable = len(shapes) == len(specs) and _have_equal_length(shapes)
        rows = list(zip(*shapes, strict=True)) if is_comparable else []
        contiguous = facts.contiguous[index] if index < len(facts.contiguous) else True
        depends = facts.depends_on_weights[index] if index < len(facts.depends_on_weights) else True
        shape = tuple(map(sizes.describe, rows))
        outputs.append(
            Output(
                dtype=first.dtype, shape=shape, contiguous=contiguous, depends_on_weights=depends
            )
        )
    return tuple(outputs)


def _weights(specs: Sequence[InputSpec], sizes: SizeNames) -> tuple[Weight, ...]:
    tables = [{weight.name: weight.shape for weight in spec.weights} for spec in specs]
    weights: list[Weight] = []
    for weight in specs[0].weights:
        shapes = [table.get(weight.name, ()) for table in tables]
        rows = list(zip(*shapes, strict=True)) if _have_equal_length(shapes) else []
        shape = tuple(map(sizes.describe, rows))
        weights.append(Weight(name=weight.name, dtype=weight.dtype, shape=shape))
    return tuple(weights)


def _have_equal_length(shapes: Sequence[Sequence[int]]) -> bool:
    return len({len(shape) for shape in shapes}) <= 1


def _run_values(row: Row, ran: Sequence[bool]) -> tuple[int, ...]:
    """Returns the values of a size at which the kernel ran; at the others it was compiled only."""
    return tuple(sorted({value for value, was_run in zip(row, ran, strict=True) if was_run}))


def _own_values(row: Row, judged: Sequence[JudgedCalls]) -> tuple[int, ...]:
    """Returns the values of a size at the own sizes of several shapes; none for a single shape."""
    if len(judged) == 1:
        return ()
    last_of_each = itertools.accumulate(len(calls.specs) for calls in judged)
    return tuple(sorted({row[end - 1] for end in last_of_each}))


def _largest(spec: InputSpec) -> int:
    """Returns the number of elements of the largest output."""
    return max((math.prod(output.shape) for output in spec.outputs), default=0)
