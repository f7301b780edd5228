"""Writes the user's shapes and dtypes into a problem's text.

A wanted shape becomes sizes of the problem if its numbers can be found in `get_inputs`; otherwise a new function gives
the inputs:

    get_inputs    [torch.randn(batch, seq, dim)]
    wanted        x: (1, 1, 64)    ->  sizes {"batch": 1, "seq": 1}
    wanted        x: (32, 64)      ->  def get_inputs_shape_1(): return [torch.randn((32, dim))]

Every shape is tried on the reference before anything is drafted.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kernelwright.agent.shapes.shape_file import WantedInput, WantedShape
from kernelwright.agent.shapes.written_inputs import InputsText
from kernelwright.errors import InputError
from kernelwright.tools.problem import (
    Problem,
    ProblemError,
    inner_integers,
    module_integers,
    parse,
)
from kernelwright.tools.references.input_spec import InputSpec, input_spec
from kernelwright.tools.shapes.judged_shapes import JudgedShape, problem_at, with_shapes
from kernelwright.tools.sizing.drawn_sizes import NAME_OF_OTHER_INPUTS, functions_of

USUAL_FUNCTION = "get_inputs"


def problem_with_shapes(
    problem: Problem,
    wanted: Sequence[WantedShape],
    dtypes: Sequence[str],
    say: Callable[[str], None] = lambda step: None,
) -> Problem:
    """Returns the problem with the wanted shapes, or those of its own functions `get_inputs_NAME`, each in each dtype.

    The problem itself without any of these. Raises ProblemError and InputError, naming the shape.
    """
    shapes, functions = _own_shapes(problem), ""
    if wanted:
        writer = _ShapeWriter(problem, input_spec(problem, as_it_is=True))
        shapes = [writer.written(shape) for shape in wanted]
        functions = "\n\n\n".join(writer.functions)
    if dtypes:
        shapes = [
            _in_dtype(shape, dtype)
            for shape in shapes or [JudgedShape(name="")]
            for dtype in dtypes
        ]
    if not shapes:
        return problem
    joint = with_shapes(problem, shapes, functions)
    for number, shape in enumerate(shapes, 1):
        say(f"trying the reference at shape {number} of {len(shapes)}")
        _try(joint, shape)
    return joint


def _own_shapes(problem: Problem) -> list[JudgedShape]:
    """Returns the shapes of the functions `get_inputs_NAME`, after `get_inputs` if it draws inputs itself."""
    names = [name for name in functions_of(problem) if NAME_OF_OTHER_INPUTS.fullmatch(name)]
    if not names:
        return []
    shapes = [JudgedShape(name=name.removeprefix("get_inputs_"), inputs=name) for name in names]
    return shapes if _calls_another(problem, names) else [JudgedShape(name=USUAL_FUNCTION), *shapes]


def _calls_another(problem: Problem, names: Sequence[str]) -> bool:
    """Whether `get_inputs` only calls a function of these names."""
    for node in parse(problem.source).body:
        if isinstance(node, ast.FunctionDef) and node.name == USUAL_FUNCTION:
            last = node.body[-1]
            call = last.value if isinstance(last, ast.Return) else None
            return isinstance(call, ast.Call) and getattr(call.func, "id", "") in names
    return False


def _in_dtype(shape: JudgedShape, dtype: str) -> JudgedShape:
    return shape.with_(name=f"{shape.name} {dtype}".strip(), dtype=dtype)


def _try(problem: Problem, shape: JudgedShape) -> None:
    """Runs the reference without data. Raises ProblemError after a failure, with the shape's name."""
    try:
        input_spec(problem_at(problem, shape), as_it_is=True)
    except ProblemError as error:
        raise ProblemError(f"shape {shape.name}: {error}") from None


@dataclass
class _ShapeWriter:
    problem: Problem
    spec: InputSpec
    """The inputs of the problem itself."""

    def __post_init__(self) -> None:
        self.text = InputsText(self.problem.source)
        self.functions: list[str] = []

    def written(self, wanted: WantedShape) -> JudgedShape:
        """Returns a wanted shape as sizes, or as a function, which is appended to `functions`."""
        self._check_sizes(wanted)
        inputs = self._by_position(wanted)
        if all(entry == WantedInput() for entry in inputs):
            return JudgedShape(name=wanted.name, sizes=wanted.sizes)
        resized = self.problem.with_sizes(wanted.sizes)
        sizes = {**wanted.sizes, **self.text.sizes_for([entry.shape for entry in inputs])}
        # A dtype or a value is no size: `get_inputs` stays as it is at other sizes.
        is_plain = all(not entry.dtype and entry.value is None for entry in inputs)
        if is_plain and _fits(self.problem.with_sizes(sizes), inputs):
            return JudgedShape(name=wanted.name, sizes=sizes)
        function = self._function_name(wanted.name)
        self.functions.append(
            InputsText(resized.source).function(function, inputs, self.spec.inputs)
        )
        shape = JudgedShape(name=wanted.name, sizes=wanted.sizes, inputs=function)
        self._check_inputs(wanted, inputs, shape)
        return shape

    def _check_sizes(self, wanted: WantedShape) -> None:
        size_values = {
            **module_integers(self.problem.source),
            **inner_integers(self.problem.source),
        }
        if unknown := [name for name in wanted.sizes if name not in size_values]:
            listed = ", ".join(size_values) or "none"
            raise InputError(
                f"--shapes: {wanted.name} sets {', '.join(unknown)}, which is no size of {self.problem.name}; "
                f"its sizes are {listed}"
            )

    def _by_position(self, wanted: WantedShape) -> list[WantedInput]:
        """Returns an input for each argument of the problem's call. Raises InputError for missing or unknown ones."""
        names, count = self.text.argument_names, len(self.spec.inputs)
        shown = ", ".join(names[:count]) or f"{count} inputs"
        if wanted.inputs and len(wanted.inputs) != count:
            raise InputError(
                f"--shapes: {wanted.name} has {_inputs(len(wanted.inputs))}, and forward is called with "
                f"{count} ({shown}): give each, or null for the problem's own"
            )
        unknown = [name for name in wanted.named_inputs if name not in names[:count]]
        if unknown:
            raise InputError(
                f"--shapes: {wanted.name} has the input {', '.join(unknown)}; forward is called with {shown}"
            )
        if wanted.named_inputs:
            return [wanted.named_inputs.get(name, WantedInput()) for name in names[:count]]
        return list(wanted.inputs) or [WantedInput()] * count

    def _function_name(self, name: str) -> str:
        # ASCII alone: \w has characters (superscripts) that are no part of a name in Python.
        words = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_").lower()
        stem = f"get_inputs_{words or 'shape'}"
        existing = {
            *functions_of(self.problem),
            *re.findall(r"def (\w+)", "\n".join(self.functions)),
        }
        while stem in existing:
            stem += "_"
        return stem

    def _check_inputs(
        self, wanted: WantedShape, inputs: Sequence[WantedInput], shape: JudgedShape
    ) -> None:
        """Draws the inputs generically if the problem's expressions give other shapes."""
        joint = with_shapes(self.problem, [shape], "\n\n\n".join(self.functions))
        if _fits(problem_at(joint, shape), inputs):
            return
        text = InputsText(self.problem.with_sizes(wanted.sizes).source)
        self.functions[-1] = text.function(shape.inputs, inputs, self.spec.inputs, generic=True)


def _inputs(count: int) -> str:
    return f"{count} input{'' if count == 1 else 's'}"


def _fits(problem: Problem, inputs: Sequence[WantedInput]) -> bool:
    """Whether a problem draws the wanted inputs."""
    try:
        described = input_spec(problem, as_it_is=True).inputs
    except ProblemError:
        return False
    if len(described) != len(inputs):
        return False
    for entry, value in zip(inputs, described, strict=True):
        tensor = value.get("tensor") if isinstance(value, dict) else None
        if entry.shape is not None and (tensor is None or tuple(tensor["shape"]) != entry.shape):
            return False
        if entry.dtype and (tensor is None or tensor["dtype"] != entry.dtype):
            return False
    return True
