"""Parameters of a kernel's definition: annotations reduced to what Triton asks of them, default values computed
apart.
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
    """The parameters without default values, and without annotations, but for what Triton refuses.

    refused: names that stand for what no kernel may name.
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
        """The defaults of one definition, positional and keyword-only."""
        args = definition.args
        named = zip(args.kwonlyargs, args.kw_defaults, strict=True)
        return cls(tuple(args.defaults), tuple((a.arg, d) for a, d in named if d is not None))

    def names(self) -> set[str]:
        """All names that occur in them."""
        expressions = [*self.positional, *(expression for _, expression in self.named)]
        return {n.id for e in expressions for n in ast.walk(e) if isinstance(n, ast.Name)}

    def values(self, world: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """`__defaults__` and `__kwdefaults__`, computed in a kernel's own namespace.

        Raises whatever the expressions raise.
        """

        def computed(expression: ast.expr) -> Any:
            found = eval(
                compile(ast.Expression(expression), "<default value>", "eval", dont_inherit=True),
                world,
            )
            return tuple(found) if isinstance(found, list) else found

        return tuple(map(computed, self.positional)), {name: computed(e) for name, e in self.named}


def reduce_annotations(definition: ast.FunctionDef, names: Mapping[str, Any]) -> None:
    """Makes the definition, in place, what Triton's code generator and its interpreter are given: bare parameters (the
    code generator would evaluate annotations and default values a second time), and local annotations that are either
    constexpr or gone. An annotation that names a plain value, which Triton refuses, stays for it to refuse.

    names: what the names of the definition stand for, as a trace holds it.
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
        kept = ast.AnnAssign(statement.target, annotation, statement.value, statement.simple)
        return ast.copy_location(kept, statement)
    if statement.value is None:
        return ast.copy_location(ast.Pass(), statement)
    return ast.copy_location(ast.Assign([statement.target], statement.value), statement)
