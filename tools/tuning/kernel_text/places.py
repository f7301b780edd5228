"""Locates syntax nodes in the text, in bytes, and the position for an additional argument of a
call.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize

from kernelwright.tools.tuning.kernel_text.parameters import Site

_LINE_END = re.compile(rb"\r\n|\r|\n")
_IGNORED = {
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.COMMENT,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


class Text:
    """A file's text with the offsets of its lines, as Python counts them."""

    def __init__(self, source: str) -> None:
        self.data = source.encode("utf-8")
        self._lines = [0, *(match.end() for match in _LINE_END.finditer(self.data))]

    def offset(self, line: int, column: int) -> int:
        """Returns the offset in bytes. line: from 1. column: in bytes, from 0, as in `ast`."""
        return self._lines[line - 1] + column

    def span(self, node: ast.expr | ast.stmt | ast.keyword) -> tuple[int, int]:
        """Returns the first byte of a node and the byte after its last."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.offset(node.lineno, node.col_offset), self.offset(
            node.end_lineno, node.end_col_offset
        )

    def site(self, node: ast.expr | ast.keyword, form: str = "{}") -> Site:
        """Returns the node itself as a site."""
        start, end = self.span(node)
        return Site(start=start, end=end, form=form)

    def written(self, node: ast.expr | ast.stmt) -> str:
        """Returns the node's own text."""
        start, end = self.span(node)
        return self.data[start:end].decode("utf-8")

    def argument(self, call: ast.Call, name: str, form: str = "{}") -> Site:
        """Returns where to insert `name=value` as the last argument of a call, after a trailing
        comma if present.
        """
        start, end = self.span(call)
        segment = self.data[start:end].decode("utf-8")
        last = "("
        at = 0
        rows = [0, *(match.end() for match in re.finditer(r"\r\n|\r|\n", segment))]
        tokens = list(tokenize.generate_tokens(io.StringIO(segment, newline="").readline))
        significant = [t for t in tokens if t.type not in _IGNORED]
        before = significant[-2]
        last = before.string
        at = rows[before.end[0] - 1] + before.end[1]
        offset = start + len(segment[:at].encode("utf-8"))
        text = f"{name}={form}"
        if last == ",":
            return Site(start=offset, end=offset, form=f" {text},")
        return Site(start=offset, end=offset, form=text if last == "(" else f", {text}")
