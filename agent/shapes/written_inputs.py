"""Edits the text of `get_inputs` for other shapes: finds its extents, and writes a new function.

get_inputs    x = torch.rand(batch, seq, dim); return [x * 2]      dim is used by get_init_inputs, too
wanted        (1, 1, 64)    ->  sizes {"batch": 1, "seq": 1}
wanted        (7, 64)       ->  x = torch.rand((7, dim)); return [x * 2]
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Any

from kernelwright.agent.shapes.shape_file import WantedInput
from kernelwright.bindings import function_at_top
from kernelwright.tools.parsing import with_replacements
from kernelwright.tools.problem import inner_integers, module_integers, parse
from kernelwright.tools.reference_integers import SINGLE_EXTENT_FACTORIES, TENSOR_FACTORIES

Extents = tuple[int, ...]


class InputsText:
    """The function `get_inputs` of a problem, as text."""

    def __init__(self, source: str) -> None:
        self._source, self._tree = source, parse(source)
        self._function = function_at_top(self._tree, "get_inputs")
        self._numbers = module_integers(source)
        self.argument_names = _argument_names(self._tree)
        """Names of forward's arguments; empty if the text does not show them."""

    def sizes_for(self, shapes: Sequence[Extents | None]) -> dict[str, int]:
        """Returns the sizes of the problem with which its inputs may have these shapes.

        Only sizes without a use in the constructor: the module stays the same. Empty if the text does not show them.
        """
        sizes: dict[str, int] = {}
        inner = inner_integers(self._source)
        for index, (shape, node) in enumerate(zip(shapes, self._returned(), strict=False)):
            written = self._extents(node)
            if shape is None or len(written) != len(shape):
                continue
            name = self.argument_names[index] if index < len(self.argument_names) else ""
            for axis, (extent, expression) in enumerate(zip(shape, written, strict=True)):
                size = f"{name}.shape[{axis}]"
                size = expression.id if isinstance(expression, ast.Name) else size
                size_values = {**self._numbers, **inner}
                if (
                    size_values.get(size, extent) != extent
                    and size not in self._names_of_constructor()
                ):
                    sizes[size] = extent
        return sizes

    def function(
        self,
        name: str,
        inputs: Sequence[WantedInput],
        own_inputs: Sequence[Any],
        generic: bool = False,
    ) -> str:
        """Returns the text of a function with the wanted inputs.

        own_inputs: descriptions of the problem's inputs (tools/wire.py). generic: every wanted
        tensor is drawn anew, from a normal distribution or the range of integers of the problem's.
        """
        if self._function is None or len(self._returned()) != len(inputs):
            drawn = [
                f"own[{index}]" if entry == WantedInput() else _drawn(entry, described)
                for index, (entry, described) in enumerate(zip(inputs, own_inputs, strict=True))
            ]
            return f"def {name}():\n    own = get_inputs()\n    return [{', '.join(drawn)}]"
        edits: list[tuple[ast.expr | ast.stmt, str]] = []
        for entry, described, returned in zip(inputs, own_inputs, self._returned(), strict=True):
            factory = None if generic else self._factory(returned)
            if entry == WantedInput():
                continue
            # Two inputs may come from a common factory, which has a single new shape.
            is_edited = any(factory is node for node, _ in edits)
            if factory is None or entry.shape is None or entry.dtype or is_edited:
                edits.append((returned, _drawn(entry, described)))
            else:
                edits.append((factory, self._resized(factory, entry.shape)))
        text = with_replacements(self._source, edits)
        segment = ast.get_source_segment(
            text, function_at_top(parse(text), "get_inputs") or ast.Pass()
        )
        return re.sub(r"\bget_inputs\b", name, re.sub(r"\n\s*\n", "\n", segment or ""), count=1)

    def _returned(self) -> list[ast.expr]:
        """Returns the elements of the returned list; none for a list not written out."""
        last = self._function.body[-1] if self._function is not None else None
        value = last.value if isinstance(last, ast.Return) else None
        if not isinstance(value, ast.List | ast.Tuple):
            return []
        # A star hides the number of inputs.
        has_star = any(isinstance(element, ast.Starred) for element in value.elts)
        return [] if has_star else value.elts

    def _factory(self, node: ast.expr) -> ast.Call | None:
        """Returns the only call of a tensor factory in an expression and its local variables; None for none, or for
        several.
        """
        local: dict[str, ast.expr] = {}
        for statement in self._function.body if self._function is not None else ():
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                local[statement.targets[0].id] = statement.value
        calls: list[ast.Call] = []
        waiting: list[ast.expr] = [node]
        while waiting:
            for child in ast.walk(waiting.pop()):
                if isinstance(child, ast.Name) and child.id in local:
                    waiting.append(local.pop(child.id))
                elif isinstance(child, ast.Call) and _makes_tensor(child):
                    calls.append(child)
        return calls[0] if len(calls) == 1 else None

    def _extents(self, node: ast.expr) -> list[ast.expr]:
        factory = self._factory(node)
        return _extents_of(factory) if factory is not None else []

    def _resized(self, factory: ast.Call, shape: Extents) -> str:
        """Returns a call with other extents; unchanged extents keep their names, counted from the last axis."""
        expressions = _extents_of(factory)
        texts: list[str] = []
        for back, extent in enumerate(reversed(shape), 1):
            expression = expressions[-back] if back <= len(expressions) else None
            is_own = isinstance(expression, ast.Name) and self._numbers.get(expression.id) == extent
            texts.insert(0, ast.unparse(expression) if is_own and expression else str(extent))
        written = ast.parse(
            f"({', '.join(texts)}{',' if len(texts) == 1 else ''})", mode="eval"
        ).body
        name = factory.func.attr if isinstance(factory.func, ast.Attribute) else ""
        keywords = [keyword for keyword in factory.keywords if keyword.arg != "size"]
        if name == "randint":
            bounds = [a for a in factory.args if not isinstance(a, ast.Tuple | ast.List)]
            arguments = [*bounds, written]
        elif name == "full":
            arguments = [written, *factory.args[1:]]
        else:
            is_single = name in SINGLE_EXTENT_FACTORIES and len(shape) == 1
            arguments = [ast.Constant(shape[0])] if is_single else [written]
        return ast.unparse(ast.Call(factory.func, arguments, keywords))

    def _names_of_constructor(self) -> set[str]:
        function = function_at_top(self._tree, "get_init_inputs")
        nodes = list(ast.walk(function)) if function is not None else []
        model = [n for n in self._tree.body if isinstance(n, ast.ClassDef)]
        for node in model:
            nodes += ast.walk(node)
        return {node.id for node in nodes if isinstance(node, ast.Name)}


def _argument_names(tree: ast.Module) -> list[str]:
    models = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Model"]
    for node in models[-1].body if models else []:
        if isinstance(node, ast.FunctionDef) and node.name == "forward":
            return [a.arg for a in (*node.args.posonlyargs, *node.args.args)][1:]
    return []


def _makes_tensor(call: ast.Call) -> bool:
    function = call.func
    if not isinstance(function, ast.Attribute) or getattr(function.value, "id", "") != "torch":
        return False
    return function.attr in {*TENSOR_FACTORIES, *SINGLE_EXTENT_FACTORIES, "randint", "full"}


def _extents_of(factory: ast.Call) -> list[ast.expr]:
    """Returns the expressions of the extents in a call of a tensor factory."""
    assert isinstance(factory.func, ast.Attribute)
    sizes = [keyword.value for keyword in factory.keywords if keyword.arg == "size"]
    if not sizes and factory.args:
        # randint's bounds come before its size.
        sizes = factory.args[-1:] if factory.func.attr == "randint" else factory.args[:1]
    if not sizes:
        return []
    if isinstance(sizes[0], ast.Tuple | ast.List):
        return sizes[0].elts
    return factory.args if factory.func.attr in TENSOR_FACTORIES else sizes


def _drawn(wanted: WantedInput, described: Any) -> str:
    """Returns the expression of a tensor with a wanted shape and dtype, or of a plain value."""
    if wanted.value is not None:
        return repr(wanted.value)
    tensor = described.get("tensor", {}) if isinstance(described, dict) else {}
    shape = tuple(tensor.get("shape", ())) if wanted.shape is None else wanted.shape
    dtype = wanted.dtype or tensor.get("dtype", "float32")
    if dtype == "bool":
        return f"torch.rand({shape}) > 0.5"
    if dtype.startswith(("int", "uint")):
        low, high = tensor.get("low", 0), tensor.get("high", 10)
        return f"torch.randint({low}, {high}, {shape}, dtype=torch.{dtype})"
    return f"torch.randn({shape}{'' if dtype == 'float32' else f', dtype=torch.{dtype}'})"
