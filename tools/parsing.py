"""`ast.parse` from many threads. CPython 3.11 counts the depth of the tree that it builds once for all threads, and now and then raises SystemError over a
good text (seen with judges side by side: "AST constructor recursion depth mismatch"). Asked again it is parsed.
"""

from __future__ import annotations

import ast

TRIES = 5


def parse_module(text: str) -> ast.Module:
    """Raises what `ast.parse` raises."""
    for _ in range(TRIES - 1):
        try:
            return ast.parse(text)
        except SystemError:
            continue
    return ast.parse(text)
