"""Calls with names (`Block(width=64)`, `block(x, mask=m)`) as the lists of values that `get_init_inputs` and
`get_inputs` return, and the signature that takes them so.
"""

from __future__ import annotations

import ast
import io
import itertools
import tokenize


def in_order(call: ast.Call, function: ast.FunctionDef | None) -> list[ast.expr] | None:
    """The values of a call's arguments in the order of the method's parameters, with the defaults of those that are
    left out between them; None where the text does not say which parameter takes what.
    """
    if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
        return None
    if not call.keywords:
        return list(call.args)
    if function is None or function.args.vararg is not None:
        return None
    given = {str(k.arg): k.value for k in call.keywords}
    names = parameters(function)
    defaults = _defaults(function)
    if set(given) - set(names[len(call.args) :]):
        return None
    last = max(names.index(name) for name in given) + 1
    rest = [given.get(name, defaults.get(name)) for name in names[len(call.args) : last]]
    return None if any(v is None for v in rest) else [*call.args, *(v for v in rest if v is not None)]


def parameters(function: ast.FunctionDef) -> list[str]:
    """The parameters of a method after `self`, with those that are given by name only."""
    given = function.args
    return [a.arg for a in (*given.posonlyargs, *given.args)][1:] + [a.arg for a in given.kwonlyargs]


def _defaults(function: ast.FunctionDef) -> dict[str, ast.expr]:
    given = function.args
    positional = [a.arg for a in (*given.posonlyargs, *given.args)]
    found = dict(zip(reversed(positional), reversed(given.defaults), strict=False))
    named = zip(given.kwonlyargs, given.kw_defaults, strict=True)
    return found | {a.arg: d for a, d in named if d is not None}


def with_places(source: str, function: ast.FunctionDef | None) -> str:
    """The text with the `*` taken out of a signature, so that its parameters have places. Line numbers stay."""
    if function is None or not function.args.kwonlyargs or function.args.vararg is not None:
        return source
    lines = source.splitlines(keepends=True)
    depth, tokens = 0, list(tokenize.generate_tokens(io.StringIO(source).readline))
    for token, after in itertools.pairwise(tokens):
        if token.start < (function.lineno, function.col_offset) or token.type != tokenize.OP:
            continue
        depth += (token.string in "([{") - (token.string in ")]}")
        if depth == 1 and token.string == "*" and after.string == ",":
            row, first, last = token.start[0] - 1, token.start[1], after.end[1]
            lines[row] = lines[row][:first] + lines[row][last:].lstrip(" ")
            break
    return "".join(lines)
