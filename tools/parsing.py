"""`ast.parse` for texts that somebody else wrote, from many threads.

CPython 3.11 counts the depth of the tree that it builds once for all threads, and now and then raises SystemError over
a good text (seen with judges side by
side: "AST constructor recursion depth mismatch"). Asked again it is parsed. What Python warns of in such a text (`1if
x`, an escape that is none) is nothing for our reader's terminal.
"""

from __future__ import annotations

import ast
import warnings

MOST_TRIES = 5
warnings.filterwarnings("ignore", category=SyntaxWarning, module="<unknown>")
warnings.filterwarnings("ignore", category=DeprecationWarning, module="<unknown>")


def parse_module(text: str) -> ast.Module:
    """Raises what `ast.parse` raises."""
    for _ in range(MOST_TRIES - 1):
        try:
            return ast.parse(text)
        except SystemError:
            continue
    return ast.parse(text)
