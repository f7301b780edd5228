"""The names that the tools ask for: a pair of classes `Foo` and `FooNew` becomes `Model` and `ModelNew`."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Mapping

from tools.parsing import parse_module

REFERENCE, CANDIDATE = "Model", "ModelNew"


def renamed(reference: str, candidate: str, told: str = "") -> tuple[str, str, str]:
    """Both texts with the tools' names, and the name that the reference had: "" where nothing was renamed.

    `told` is the corpus's own word for the class. Left as they are: texts without such a pair, and texts that use Model or ModelNew for something else.
    """
    try:
        entry = _entry(reference, candidate, told)
        if not entry:
            return reference, candidate, ""
        names = {entry: REFERENCE, f"{entry}New": CANDIDATE}
        return _replaced(reference, names), _replaced(candidate, names), entry
    except (SyntaxError, ValueError, RecursionError, MemoryError, tokenize.TokenError):
        return reference, candidate, ""


def _entry(reference: str, candidate: str, told: str) -> str:
    there, new = parse_module(reference), parse_module(candidate)
    pairs = [name for name in _classes(there) if f"{name}New" in _classes(new)]
    if not pairs or {REFERENCE, CANDIDATE} & (_names(there) | _names(new)):
        return ""
    return told if told in pairs else pairs[-1]


def _classes(tree: ast.Module) -> list[str]:
    return [node.name for node in tree.body if isinstance(node, ast.ClassDef)]


def _names(tree: ast.Module) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} | set(_classes(tree))


def _replaced(text: str, names: Mapping[str, str]) -> str:
    """Whole names that are nobody's attribute: `nn.LayerNorm` stays where the class is LayerNorm. Texts and comments stay."""
    lines, before, places = list(io.StringIO(text)), "", []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME and token.string in names and before != ".":
            places.append(token)
        before = token.string
    for token in reversed(places):
        row, first, last = token.start[0] - 1, token.start[1], token.end[1]
        lines[row] = lines[row][:first] + names[token.string] + lines[row][last:]
    return "".join(lines)
