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
    positional = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    keyword_only = [a.arg for a in function.args.kwonlyargs]
    values: dict[str, ast.expr] = {}
    # Defaults belong to the last positional parameters.
    for name, default in zip(reversed(positional), reversed(function.args.defaults), strict=False):
        values[name] = default
    for name, keyword_default in zip(keyword_only, function.args.kw_defaults, strict=True):
        if keyword_default is not None:
            values[name] = keyword_default
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call):
            values |= dict(_values_of(decorator))
    names = [name for name in [*positional, *keyword_only] if name in values]
    return [_assignment(name, _default_of(values[name])) for name in names]


def has_all_values(function: ast.FunctionDef) -> bool:
    """Returns whether a function needs no arguments, or its decorators provide all values."""
    needed = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return not needed or (
        bool(function.decorator_list) and len(parameter_values(function)) == len(needed)
    )


def _values_of(decorator: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """Yields names and values from a decorator whose first text names parameters."""
    texts: list[str] = []
    for argument in decorator.args:
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            texts.append(argument.value)
    keywords = {keyword.arg: keyword.value for keyword in reversed(decorator.keywords)}
    default = keywords.get("default")
    if default is not None:
        # click: "--batch-size" declares the parameter batch_size.
        for text in texts:
            yield text.lstrip("-").replace("-", "_"), default
    elif texts and len(decorator.args) == 2 and isinstance(decorator.args[1], ast.List | ast.Tuple):
        # pytest: "n, m" with a list of tuples; the first element gives the values.
        names = [name.strip() for name in texts[0].split(",")]
        rows = decorator.args[1].elts
        if not rows:
            return
        is_row = len(names) > 1 and isinstance(rows[0], ast.Tuple | ast.List)
        values = rows[0].elts if is_row and isinstance(rows[0], ast.Tuple | ast.List) else rows[:1]
        yield from zip(names, values, strict=False)


def _default_of(value: ast.expr) -> ast.expr:
    """Returns the default inside `typer.Option(64)`; other values unchanged."""
    if not isinstance(value, ast.Call) or not value.args:
        return value
    is_parameter = ast.unparse(value.func).endswith(PARAMETER_CLASSES)
    return value.args[0] if is_parameter else value


def _assignment(name: str, value: ast.expr) -> ast.stmt:
    return ast.copy_location(
        ast.Assign([ast.copy_location(ast.Name(name, ast.Store()), value)], value), value
    )
