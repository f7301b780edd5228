"""Reads the text of a problem: its model, the names of its arguments, and the names of its sizes."""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from kernelwright.policies.inductor.refusing import DraftRefused
from kernelwright.policies.inductor.syntax import argument_names, names_in, nodes_in

NON_EXTENT_NAMES = re.compile(
    r"kernel|stride|padding|dilation|pool|layers|depth|axis|scale_factor|block"
)
"""Argument names of structural parameters (kernel sizes, strides), as opposed to sizes."""


@dataclass
class ProblemText:
    """Syntax tree of a problem, with access to its parts."""

    source: str
    tree: ast.Module = field(init=False)

    def __post_init__(self) -> None:
        self.tree = ast.parse(self.source)

    @property
    def model(self) -> ast.ClassDef:
        """Class definition of `Model` in the text."""
        for node in self.tree.body:
            if isinstance(node, ast.ClassDef) and node.name == "Model":
                return node
        raise DraftRefused("the problem has no class Model")

    @property
    def names(self) -> set[str]:
        """Returns every name and argument of the text."""
        words = names_in(self.tree)
        return words | {n.arg for n in ast.walk(self.tree) if isinstance(n, ast.arg)}

    def method(self, name: str) -> ast.FunctionDef | None:
        """Returns a method defined in Model, or in a base class in the same file."""
        for cls in self._lineage(self.model):
            if definition := next(
                (f for f in cls.body if isinstance(f, ast.FunctionDef) and f.name == name), None
            ):
                return definition
        return None

    def _lineage(self, cls: ast.ClassDef) -> Iterator[ast.ClassDef]:
        """A class, and those it inherits from, as far as they are in the file."""
        yield cls
        names = {ast.unparse(base) for base in cls.bases}
        for node in self.tree.body:
            if isinstance(node, ast.ClassDef) and node.name in names and node is not cls:
                yield from self._lineage(node)

    @property
    def forward(self) -> ast.FunctionDef:
        """Returns the definition of Model.forward. Raises DraftRefused if the file has none."""
        definition = self.method("forward")
        if definition is None:
            raise DraftRefused("Model has no forward in this file")
        return definition

    def input_paths(self, count: int) -> list[str]:
        """Returns the names of forward's first `count` arguments, with `rest[0]` for variadic
        ones.
        """
        arguments = self.forward.args
        names = [a.arg for a in [*arguments.posonlyargs, *arguments.args][1:]]
        if arguments.vararg is not None:
            names += [f"{arguments.vararg.arg}[{i}]" for i in range(count)]
        if count > len(names):
            raise DraftRefused(f"get_inputs gives {count} inputs, and forward takes {len(names)}")
        return names[:count]

    def constructor_names(self) -> list[str]:
        """The arguments of Model's constructor, in their order."""
        init = self.method("__init__")
        return [a.arg for a in init.args.args[1:]] if init else []

    def attribute_of(self, argument: str) -> str:
        """Returns the attribute that stores a constructor argument unchanged; `argument_` if
        there is none.
        """
        init = self.method("__init__")
        for node in ast.walk(init) if init else ():
            if (
                isinstance(node, ast.Assign)
                and isinstance(node.value, ast.Name)
                and node.value.id == argument
            ):
                for target in node.targets:
                    if (
                        ast.unparse(target).startswith("self.")
                        and ast.unparse(target).count(".") == 1
                    ):
                        return ast.unparse(target).removeprefix("self.")
            # `self.a, self.b = a, b`
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
                for attribute, value in _pairs(node):
                    if isinstance(value, ast.Name) and value.id == argument:
                        return attribute
        return f"{argument}_"

    def dimension_names(self) -> list[list[str]]:
        """Returns, per tensor made by get_inputs, the names of its sizes; "" for sizes without a
        name.
        """
        names_of_tensors: list[list[str]] = []
        for node in self.tree.body:
            if isinstance(node, ast.FunctionDef) and node.name == "get_inputs":
                names_of_tensors = [names for call in _calls(node) if (names := _sizes_named(call))]
        return names_of_tensors

    def forward_names(self) -> dict[str, str]:
        """Returns forward's names for sizes of arguments, by path: `b, t, d = x.shape`, `n =
        x.size(0)`.
        """
        name_of_path: dict[str, str] = {}
        arguments = argument_names(self.forward)
        for node in self.forward.body:
            if not isinstance(node, ast.Assign) or len(node.targets) != 1:
                continue
            target, value = node.targets[0], ast.unparse(node.value)
            if isinstance(target, ast.Name) and (
                single := re.fullmatch(r"(\w+)\.(?:shape\[|size\()(\d+)[\])]", value)
            ):
                if single[1] in arguments:
                    name_of_path.setdefault(f"{single[1]}.shape[{single[2]}]", target.id)
            elif isinstance(target, ast.Tuple) and (
                whole := re.fullmatch(r"(\w+)\.(?:shape|size\(\))", value)
            ):
                names = [t.id if isinstance(t, ast.Name) else "*" for t in target.elts]
                if whole[1] in arguments and "*" not in names:
                    for i, name in enumerate(names):
                        name_of_path.setdefault(f"{whole[1]}.shape[{i}]", name.strip("_"))
            arguments -= names_in(target)
        return {
            path: name for path, name in name_of_path.items() if name.isalpha()
        }  # s0 and x1 are Inductor's own

    def named_integers(self) -> dict[int, list[str]]:
        """Value -> the module's names for it."""
        names_of_value: dict[int, list[str]] = {}
        for node in self.tree.body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            pairs = (
                _name_pairs(targets[0], node.value)
                if len(targets) == 1 and isinstance(node, ast.Assign)
                else []
            )
            for name, value in pairs:
                if isinstance(value, ast.Constant) and type(value.value) is int:
                    names_of_value.setdefault(value.value, []).append(name)
        return names_of_value


def _name_pairs(target: ast.expr, value: ast.expr) -> list[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        return [(target.id, value)]
    if (
        isinstance(target, ast.Tuple)
        and isinstance(value, ast.Tuple)
        and len(target.elts) == len(value.elts)
    ):
        return [
            (t.id, v)
            for t, v in zip(target.elts, value.elts, strict=True)
            if isinstance(t, ast.Name)
        ]
    return []


def _pairs(node: ast.Assign) -> list[tuple[str, ast.expr]]:
    """`self.a, self.b = x, y` as (a, x), (b, y)."""
    target, value = node.targets[0], node.value
    if not (
        isinstance(target, ast.Tuple)
        and isinstance(value, ast.Tuple)
        and len(target.elts) == len(value.elts)
    ):
        return []
    return [
        (ast.unparse(t).removeprefix("self."), v)
        for t, v in zip(target.elts, value.elts, strict=True)
        if ast.unparse(t).startswith("self.")
    ]


def _calls(node: ast.AST) -> list[ast.Call]:
    """Yields the calls in the order of the text."""
    calls = nodes_in(node, ast.Call)
    return sorted(calls, key=lambda n: (n.lineno, n.col_offset))


def _sizes_named(call: ast.Call) -> list[str]:
    """The sizes of `torch.randn(batch, 3, width)` and its like: ["batch", "", "width"]."""
    if not re.search(r"\b(randn?|randint|ones|zeros|empty|full|normal)$", ast.unparse(call.func)):
        return []
    arguments: list[ast.expr] = list(call.args)
    named = next((k.value for k in call.keywords if k.arg == "size"), None)
    wrapped = next((a for a in [named, *arguments] if isinstance(a, ast.Tuple | ast.List)), None)
    sizes = wrapped.elts if isinstance(wrapped, ast.Tuple | ast.List) else arguments
    return [n.id.lower() if isinstance(n, ast.Name) else "" for n in sizes]


def readable(name: str) -> str:
    """Returns a readable Python name: lower case, without keywords of Python."""
    identifier = re.sub(r"\W+", "_", name).strip("_").lower() or "size"
    identifier = f"size_{identifier}" if identifier[0].isdigit() else identifier
    return (
        f"{identifier}_"
        if keyword.iskeyword(identifier) or identifier in dir(__builtins__)
        else identifier
    )
