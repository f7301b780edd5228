"""`ast.parse` for texts that somebody else wrote, from many threads.

CPython 3.11 counts the depth of the tree that it builds once for all threads, and now and then raises SystemError over
a good text (seen with judges side by
side: "AST constructor recursion depth mismatch"). Asked again it is parsed. What Python warns of in such a text (`1if
x`, an escape that is none) is nothing for our reader's terminal.
"""

from __future__ import annotations

import ast
import functools
import types
import warnings

MAX_ATTEMPTS = 5
MAX_TEXT_CHARACTERS = 1 << 20
"""Characters: a million short lines take a minute and gigabytes to parse and to hash."""
warnings.filterwarnings("ignore", category=SyntaxWarning, module="<unknown>")
warnings.filterwarnings("ignore", category=DeprecationWarning, module="<unknown>")


def parse_module(text: str) -> ast.Module:
    """Raises what `ast.parse` raises, and ValueError for a text that is too long."""
    if len(text) > MAX_TEXT_CHARACTERS:
        raise ValueError(f"a text of {len(text):,} characters: at most {MAX_TEXT_CHARACTERS:,} are parsed")
    for _ in range(MAX_ATTEMPTS - 1):
        try:
            return ast.parse(text)
        except SystemError:
            continue
    return ast.parse(text)


@functools.lru_cache(maxsize=64)
def code_of(source: str, file: str) -> types.CodeType:
    """A problem's text, compiled under that file name: a verdict runs it several times. Raises SyntaxError."""
    return compile(source, file, "exec")
