"""Parameters of a kernel's definition: annotations reduced to those Triton needs, default values
computed separately.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

CONSTEXPR = "__triton_constexpr__"
"""The name of `tl.constexpr` in a rebuilt kernel's namespace, which no kernel can spell."""


def parameters(definition: ast.FunctionDef) -> list[ast.arg]:
    """All of them, in Triton's order."""
    args = definition.args
    return [*args.args, *([args.vararg] if args.vararg else []), *args.kwonlyargs]


def is_constexpr(annotation: ast.expr | None) -> bool:
    """Whether Triton takes an annotation for constexpr: its text holds the word (KernelParam.is_constexpr)."""
    if annotation is None:
        return False
    nodes = list(ast.walk(annotation))
    words = [n.id for n in nodes if isinstance(n, ast.Name)] + [
        n.attr for n in nodes if isinstance(n, ast.Attribute)
    ]
    words += [n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    return any("constexpr" in word for word in words)


def constexpr_parameters(definition: ast.FunctionDef) -> dict[str, str]:
    """The annotations of a rebuilt function.

    Other ones only say how a launch is specialised, which the trace has said already.
    """
    return {a.arg: "constexpr" for a in parameters(definition) if is_constexpr(a.annotation)}


def bare_arguments(definition: ast.FunctionDef, refused: Collection[str] = ()) -> ast.arguments:
    """Returns the parameters without default values, and without annotations, except annotations
    which Triton refuses.

    refused: names of values which no kernel may use in annotations.
    """

    def bare(arg: ast.arg) -> ast.arg:
        names = (
            (n for n in ast.walk(arg.annotation) if isinstance(n, ast.Name))
            if arg.annotation
            else ()
        )
        return ast.copy_location(
            ast.arg(arg.arg, next((n for n in names if n.id in refused), None)), arg
        )

    args = definition.args
    named = [bare(a) for a in args.kwonlyargs]
    return ast.arguments(
        [],
        [bare(a) for a in args.args],
        args.vararg and bare(args.vararg),
        named,
        [None] * len(named),
        None,
        [],
    )


@dataclass(frozen=True)
class Defaults:
    """The default values of a definition's parameters, as expressions."""

    positional: tuple[ast.expr, ...]
    named: tuple[tuple[str, ast.expr], ...]

    @classmethod
    def of(cls, definition: ast.FunctionDef) -> Defaults:
        """Returns the defaults of a definition, positional and keyword-only."""
        args = definition.args
        named = zip(args.kwonlyargs, args.kw_defaults, strict=True)
        return cls(tuple(args.defaults), tuple((a.arg, d) for a, d in named if d is not None))

    def names(self) -> set[str]:
        """Returns all names in the expressions."""
        expressions = [*self.positional, *(expression for _, expression in self.named)]
        return {n.id for e in expressions for n in ast.walk(e) if isinstance(n, ast.Name)}

    def values(self, world: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """`__defaults__` and `__kwdefaults__`, computed in a kernel's own namespace.

        Raises whatever the expressions raise.
        """

        def computed(expression: ast.expr) -> Any:
            default = eval(
                compile(ast.Expression(expression), "<default value>", "eval", dont_inherit=True),
                world,
            )
            return tuple(default) if isinstance(default, list) else default

        return tuple(map(computed, self.positional)), {name: computed(e) for name, e in self.named}


def reduce_annotations(definition: ast.FunctionDef, names: Mapping[str, Any]) -> None:
    """Changes a definition to the form expected by Triton's code generator and interpreter, in
    place.

    Parameters lose annotations and defaults (the code generator would evaluate them a second
    time); local annotations are reduced to constexpr or removed. An annotation with a plain
    value, which Triton refuses, stays for Triton to refuse. names: meaning of the definition's
    global names, as in a trace.
    """
    refused = {
        name
        for name, form in names.items()
        if isinstance(form, dict) and form.keys() & {"value", "unknown"}
    }
    definition.args = bare_arguments(definition, refused)
    definition.returns = None
    for node in list(ast.walk(definition)):
        for name in ("body", "orelse"):
            statements = getattr(node, name, None)
            if isinstance(statements, list):
                setattr(node, name, [_local(s) for s in statements])


def _local(statement: ast.stmt) -> ast.stmt:
    if not isinstance(statement, ast.AnnAssign):
        return statement
    if is_constexpr(statement.annotation):
        annotation = ast.copy_location(ast.Name(CONSTEXPR, ast.Load()), statement.annotation)
        reduced = ast.AnnAssign(statement.target, annotation, statement.value, statement.simple)
        return ast.copy_location(reduced, statement)
    if statement.value is None:
        return ast.copy_location(ast.Pass(), statement)
    return ast.copy_location(ast.Assign([statement.target], statement.value), statement)
