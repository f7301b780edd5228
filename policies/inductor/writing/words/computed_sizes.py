"""Names for sizes computed of others."""

from __future__ import annotations

import ast

MAX_SIZE_NAME_CHARACTERS = 32
"""Maximum length of a computed size's name."""
COMPOUND = ("_by_", "_plus_", "_minus_", "_over_")
"""Joining words in a computed size's name."""


def name_of(node: ast.expr) -> str:
    """Returns a short name for arithmetic of sizes, `s_by_2_plus_1` for `2 * s + 1`; empty if
    there is none.
    """
    name = _words(node)
    return name if name.isidentifier() and len(name) <= MAX_SIZE_NAME_CHARACTERS else ""


def _words(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return str(node.value)
    if not isinstance(node, ast.BinOp):
        return ""
    left, right = _words(node.left), _words(node.right)
    if not left or not right:
        return ""
    if isinstance(node.op, ast.Mult):
        return f"{right}_by_{left}" if left.isdigit() else f"{left}_by_{right}"
    word = {ast.Add: "plus", ast.Sub: "minus", ast.FloorDiv: "over"}.get(type(node.op))
    return f"{left}_{word}_{right}" if word else ""
