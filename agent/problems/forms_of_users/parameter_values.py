"""Values of a function's parameters in calls without arguments: defaults, and values in
decorators.

@click.option("--batch-size", default=16)           batch_size = 16
@pytest.mark.parametrize("n", [64, 128])            n = 64
def main(n: int = typer.Option(64), eps=1e-5):      n = 64, eps = 1e-5
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

PARAMETER_CLASSES = ("Option", "Argument")
"""Typer classes whose first argument is a parameter's default."""


def parameter_values(function: ast.FunctionDef) -> list[ast.stmt]:
    """Returns an assignment for each parameter with a known value."""
    arguments = [*function.args.posonlyargs, *function.args.args]
    defaults = function.args.defaults
    values = {
        a.arg: d for a, d in zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True)
    }
    pairs = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    values |= {a.arg: d for a, d in pairs if d is not None}
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call):
            values |= dict(_values_of(decorator))
    names = [a.arg for a in (*arguments, *function.args.kwonlyargs)]
    return [_assignment(name, _default_of(values[name])) for name in names if name in values]


def has_all_values(function: ast.FunctionDef) -> bool:
    """Returns whether a function needs no arguments, or its decorators provide all values."""
    needed = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return not needed or (
        bool(function.decorator_list) and len(parameter_values(function)) == len(needed)
    )


def _values_of(decorator: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """Yields names and values from a decorator whose first text names parameters."""
    texts = [
        a.value for a in decorator.args if isinstance(a, ast.Constant) and isinstance(a.value, str)
    ]
    default = next((k.value for k in decorator.keywords if k.arg == "default"), None)
    if default is not None:
        yield from ((text.lstrip("-").replace("-", "_"), default) for text in texts)
    elif texts and len(decorator.args) == 2 and isinstance(decorator.args[1], ast.List | ast.Tuple):
        names = [name.strip() for name in texts[0].split(",")]
        first = next(iter(decorator.args[1].elts), None)
        values = (
            first.elts if len(names) > 1 and isinstance(first, ast.Tuple | ast.List) else [first]
        )
        yield from (
            (name, value) for name, value in zip(names, values, strict=False) if value is not None
        )


def _default_of(value: ast.expr) -> ast.expr:
    is_class = isinstance(value, ast.Call) and ast.unparse(value.func).endswith(PARAMETER_CLASSES)
    return value.args[0] if is_class and isinstance(value, ast.Call) and value.args else value


def _assignment(name: str, value: ast.expr) -> ast.stmt:
    return ast.copy_location(
        ast.Assign([ast.copy_location(ast.Name(name, ast.Store()), value)], value), value
    )
