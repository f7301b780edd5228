"""Extracts the candidate from a chat reply or a Markdown file: the Python of its fenced blocks,
joined to a program.

    The kernel:                     import triton
    ```triton                       @triton.jit
    import triton                   def scale(x): ...
    @triton.jit
    def scale(x): ...        ->
    ```                             class ModelNew(nn.Module):
    and the module:                     def forward(self, x): scale[(1,)](x)
    ~~~python title="model.py"
    class ModelNew(nn.Module):
        def forward(self, x): scale[(1,)](x)
    ~~~

The block which defines `class ModelNew` is taken, and with it every block which defines a name
that it uses and lacks. The syntax tree shows what a block defines: a block that only mentions the
class defines nothing. Labels matter only for blocks which do not parse. The thoughts of a
reasoning model are no part of its answer, closed or cut off.

The plugs import nothing of this project:
`plugs/kernelwright-client/src/kernelwright_client/fenced_code.py` is a copy of this file, and a
test compares the two.
"""

from __future__ import annotations

import ast
import builtins
import re
import textwrap
from functools import cached_property

ENTRY_POINT = "ModelNew"
MAX_CHARACTERS = 1 << 20
MAX_FENCED_BLOCKS = 64
"""Maximum number of blocks read, counted from the end."""
MAX_CLOSING_FENCES = 8
"""Maximum number of fences tried as the end of a block: a docstring can contain fences of its
own.
"""
_PARSE_ATTEMPTS = 5
"""CPython 3.11 raises SystemError over a good text now and then when several threads parse."""

_THOUGHT_BEGINS = re.compile(
    r"^[ \t]*(?:<(?:think|thinking|thought|reasoning)>|\[THINK\]|◁think▷|<\|channel\|>analysis<\|message\|>)",
    re.IGNORECASE | re.MULTILINE,
)
"""Marks of DeepSeek and Qwen, Mistral, Kimi and gpt-oss."""
_THOUGHT_ENDS = re.compile(
    r"</(?:think|thinking|thought|reasoning)>|\[/THINK\]|◁/think▷|<\|channel\|>final<\|message\|>",
    re.IGNORECASE,
)
_OPENING_FENCE = re.compile(
    r"^(?:(?P<indent>(?:[ \t>]|[-*+] |\d+[.)] )*)|[^`]*[^`\s][ \t]*(?=`{3,}[A-Za-z]))"
    r"(?P<fence>`{3,}|~{3,})[ \t]*(?P<info>[^`]*)$"
)
"""A fence alone on its line, or with a label behind prose. `indent` also holds the marks of quotations and lists."""
MAX_FENCE_LINE_CHARACTERS = 1000
_QUOTATION = re.compile(r"^[ \t]*> ?", re.MULTILINE)
_TRIPLE_QUOTE = re.compile(r"\"{3}|'{3}")
_LABEL = re.compile(r"[\w+-]+")
_PYTHON_LABEL = re.compile(r"py|ipy|triton|torch", re.IGNORECASE)
_DEFINITION = re.compile(r"^(?:(?:async )?def (\w+)|class (\w+)|(\w+) *=[^=])", re.MULTILINE)
_CODE_LINE = re.compile(
    r"^\s*(?:import \w|from [\w.]+ import|def \w+\s*\(|class \w+|@triton|@tl\.)", re.MULTILINE
)
_FUTURE_IMPORT = re.compile(r"^from __future__ import .*\n", re.MULTILINE)


class Block:
    """A fenced block without its fences and its indentation."""

    def __init__(self, label: str, text: str) -> None:
        """Stores the block. label: first word behind the opening fence, such as `python`; empty
        if missing.
        """
        self.label = label
        self.text = text

    @cached_property
    def tree(self) -> ast.Module | None:
        """Syntax tree; None if the block does not parse."""
        return _parse(self.text)

    @property
    def labelled_python(self) -> bool:
        """Returns whether the label is Python's, or a usual label of kernels."""
        return bool(_PYTHON_LABEL.match(self.label))

    @cached_property
    def defined(self) -> set[str]:
        """The names bound at the top level; of a broken block, those seemingly bound by unindented lines."""
        if self.tree is None:
            return {
                name for match in _DEFINITION.finditer(self.text) for name in match.groups() if name
            }
        return _bound_names(self.tree.body)

    @cached_property
    def missing(self) -> set[str]:
        """Returns the names which the block reads and never binds; all words of a block that does
        not parse.
        """
        if self.tree is None:
            return set(re.findall(r"[A-Za-z_]\w*", self.text)) - self.defined
        nodes = list(ast.walk(self.tree))
        names = [node for node in nodes if isinstance(node, ast.Name)]
        read = {node.id for node in names if isinstance(node.ctx, ast.Load)}
        bound = {node.id for node in names if isinstance(node.ctx, ast.Store)}
        bound |= {node.arg for node in nodes if isinstance(node, ast.arg)}
        bound |= {node.name for node in nodes if isinstance(node, _DEFINITIONS)}
        return read - bound - self.defined - set(vars(builtins))


_DEFINITIONS = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def extract_code(reply: str) -> str:
    """Returns the candidate's program, or the text itself if it is a program already; empty if
    there is none.

    Without a block defining `ModelNew`, returns the longest block labelled as Python, else
    the longest block without a label that parses: the judge then reports what is missing.
    """
    text = _normalised(reply)
    answer = text if _is_program(text) else answer_of(text)
    blocks = fenced_blocks(answer)
    if not blocks or _is_program(answer):
        return f"{answer.strip()}\n" if _looks_like_code(answer) else ""
    entry = _entry_block(blocks)
    if entry is not None:
        return _joined(entry, blocks)
    python = [block.text for block in blocks if block.labelled_python]
    plain = [
        block.text
        for block in blocks
        if not block.label and block.tree and _looks_like_code(block.text)
    ]
    return max(python or plain, key=len, default="")


def answer_of(reply: str) -> str:
    """Returns the part of a reply after its thoughts, without the text after thoughts that were
    cut off.

    A chat template may contain the mark that opens the thoughts, so a closing mark needs no
    opening mark before it.
    """
    answer = _THOUGHT_ENDS.split(_normalised(reply))[-1]
    opening = _THOUGHT_BEGINS.search(answer)
    return answer if opening is None else answer[: opening.start()]


def fenced_blocks(text: str) -> list[Block]:
    """Returns the fenced blocks of a Markdown text (CommonMark 0.31, 4.5); the last block may
    lack its closing fence.
    """
    lines = text.split("\n")
    blocks = []
    number = 0
    while number < len(lines):
        opening = _opening(lines[number])
        number += 1
        if opening is not None:
            end, last_line = _closing_line(lines, number, opening["fence"])
            blocks.append(_block(opening, [*lines[number:end], last_line]))
            number = end + 1
    return blocks[-MAX_FENCED_BLOCKS:]


def _opening(line: str) -> re.Match[str] | None:
    holds_fence = "```" in line or "~~~" in line
    return (
        _OPENING_FENCE.match(line)
        if holds_fence and len(line) <= MAX_FENCE_LINE_CHARACTERS
        else None
    )


def _closing_line(lines: list[str], start: int, fence: str) -> tuple[int, str]:
    """Returns the line of the closing fence, and the code before the fence on that line.

    A docstring can hold fences of its own. The first fence with which the block parses as Python is taken, else the
    first at all.
    """
    mark = re.escape(fence[0])
    closing = re.compile(rf"^([^{mark}]*){mark}{{{len(fence)},}}[ \t]*$")
    ends: list[tuple[int, str]] = []
    for number in range(start, len(lines)):
        if match := closing.match(lines[number]):
            ends.append((number, match[1].strip(" \t>") and match[1]))
            text = "\n".join([*lines[start:number], ends[-1][1]])
            if not _TRIPLE_QUOTE.search(text) or _parse(textwrap.dedent(text)):
                return ends[-1]
        elif ends and _opening(lines[number]):
            break  # another block begins
        if len(ends) == MAX_CLOSING_FENCES:
            break
    return ends[0] if ends else (len(lines), "")


def _block(opening: re.Match[str], lines: list[str]) -> Block:
    text = "\n".join(lines)
    if ">" in (opening["indent"] or ""):
        text = _QUOTATION.sub("", text)
    label = _LABEL.search(opening["info"])
    return Block(
        label=label[0] if label else "", text=textwrap.dedent(text).strip("\n").rstrip() + "\n"
    )


def _entry_block(blocks: list[Block]) -> Block | None:
    """Returns the last block which defines the entry point; among blocks that do not parse, a
    block which seems to.
    """
    defining = [block for block in blocks if ENTRY_POINT in block.defined]
    parsed = [block for block in defining if block.tree]
    broken = [block for block in defining if not block.label or block.labelled_python]
    entries = parsed or broken
    return entries[-1] if entries else None


def _joined(entry: Block, blocks: list[Block]) -> str:
    """Joins the entry block and the blocks whose names it needs, directly or through another
    block, to a program.
    """
    chosen = [entry]
    for block in chosen:  # grows while it is read
        for name in sorted(block.missing):
            if not any(name in other.defined for other in chosen):
                chosen += _provider(name, blocks, blocks.index(entry))
    parts = [block.text for block in blocks if block in chosen and block is not entry]
    if not parts:
        return entry.text
    program = "\n\n".join([*parts, entry.text])
    futures = dict.fromkeys(_FUTURE_IMPORT.findall(program))
    return "".join(futures) + _FUTURE_IMPORT.sub("", program)


def _provider(name: str, blocks: list[Block], entry: int) -> list[Block]:
    """Returns the block which defines a name: the last block before the entry block, else the
    first block after it.
    """
    before = [block for block in blocks[:entry] if name in block.defined]
    after = [block for block in blocks[entry + 1 :] if name in block.defined]
    return before[-1:] or after[:1]


def _bound_names(body: list[ast.stmt]) -> set[str]:
    """Returns the names bound by statements, also those under `if`, `try` and `with`."""
    names: set[str] = set()
    for node in body:
        if isinstance(node, _DEFINITIONS):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            stored = [name for name in ast.walk(node) if isinstance(name, ast.Name)]
            names |= {name.id for name in stored if isinstance(name.ctx, ast.Store)}
        elif isinstance(node, ast.If | ast.Try | ast.With):
            for field in ("body", "orelse", "finalbody"):
                names |= _bound_names(getattr(node, field, []))
    return names


def _normalised(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _is_program(text: str) -> bool:
    """Whether the whole text is Python, fences and all: a file whose docstring holds Markdown."""
    tree = _parse(text)
    begins_with_fence = _opening(
        text.lstrip().partition("\n")[0]
    )  # `~~~python` alone is an expression
    return tree is not None and bool(tree.body) and not begins_with_fence


def _looks_like_code(text: str) -> bool:
    """Whether a text is code, broken or not: its syntax error is then the verdict. Prose is none."""
    lines = _CODE_LINE.findall(text)
    return len(lines) > 1 or (len(lines) == 1 and _parse(text) is not None)


def _parse(text: str) -> ast.Module | None:
    """Returns the syntax tree; None if the text is no Python, or too long for a program."""
    if len(text) > MAX_CHARACTERS:
        return None
    for _ in range(_PARSE_ATTEMPTS):
        try:
            return ast.parse(text)
        except SystemError:
            continue
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
    return None
