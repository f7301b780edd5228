"""Dataclasses and named tuples as arguments of forward: passed as dictionaries of fields, and
rebuilt by the adapter.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class FieldsClass:
    """Dataclass or named tuple: class with named fields."""

    name: str
    fields: tuple[str, ...]
    is_tuple: bool

    def rebuilt(self, argument: str) -> str:
        """Returns the expression that creates the record from a dictionary."""
        return f"{self.name}(**{argument})"

    def taken_apart(self, value: ast.expr, values: Mapping[str, ast.expr]) -> str:
        """Returns the expression of the record's dictionary. values: expressions of names."""
        if isinstance(value, ast.Call) and not any(isinstance(a, ast.Starred) for a in value.args):
            named = dict(zip(self.fields, map(ast.unparse, value.args), strict=False))
            named |= {str(k.arg): ast.unparse(k.value) for k in value.keywords if k.arg}
            if len(named) == len(value.args) + len(value.keywords):
                return "{" + ", ".join(f"{key!r}: {text}" for key, text in named.items()) + "}"
        text = ast.unparse(value)
        return f"{text}._asdict()" if self.is_tuple else f"dict(vars({text}))"


def records_of(tree: ast.Module) -> dict[str, FieldsClass]:
    """Returns the dataclasses and named tuples defined in a file, by name."""
    records: dict[str, FieldsClass] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            # Fields are annotated names in the class body.
            bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
            decorators = " ".join(ast.unparse(d) for d in node.decorator_list)
            if "NamedTuple" in bases or "dataclass" in decorators:
                targets = [n.target for n in node.body if isinstance(n, ast.AnnAssign)]
                fields = tuple(t.id for t in targets if isinstance(t, ast.Name))
                records[node.name] = FieldsClass(node.name, fields, "NamedTuple" in bases)
        elif isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Name):
            call = node.value
            if (
                isinstance(call, ast.Call)
                and ast.unparse(call.func).rpartition(".")[2] == "namedtuple"
            ):
                records[target.id] = FieldsClass(target.id, _fields(call), is_tuple=True)
    return records


def _fields(call: ast.Call) -> tuple[str, ...]:
    """Returns the fields of `namedtuple("Batch", "x mask")` or `namedtuple("Batch", ["x",
    "mask"])`.
    """
    try:
        fields = ast.literal_eval(call.args[1])
    except (IndexError, ValueError):
        return ()
    if isinstance(fields, str):
        return tuple(fields.replace(",", " ").split())
    return tuple(map(str, fields))
