"""Lines that fit: calls and sums over the width are broken between their parts."""

from __future__ import annotations

import ast
import textwrap

WIDTH = 120
BINARY_SIGNS: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.BitAnd: "&", ast.BitOr: "|"
}  # fmt: skip
"""Operators a line is broken before."""


def fold_items(opening: str, items: list[str], closing: str, indent: str = "") -> list[str]:
    """Returns a bracketed list on one line if short, otherwise on as few lines as possible."""
    whole = f"{opening}{', '.join(items)}{closing}"
    if len(whole) + len(indent) <= WIDTH:
        return [whole]
    # textwrap breaks at blanks; blanks inside items are hidden from it.
    words = ", ".join(item.replace(" ", "\0") for item in items) + ","  # breaks between items only
    inside = [
        line.replace("\0", " ")
        for line in textwrap.wrap(
            words, WIDTH - 4 - len(indent), break_long_words=False, break_on_hyphens=False
        )
    ]
    return [opening, *(f"    {line}" for line in inside), closing]


def break_long_lines(text: str) -> str:
    """A function's text with its long lines broken. Each statement is on a line of its own, as `ast.unparse` writes."""
    return "\n".join(part for line in text.splitlines() for part in break_line(line))


def break_line(line: str, around: int = 0) -> list[str]:
    """Breaks a statement into lines that fit the width less `around` columns; unbreakable lines
    are unchanged.
    """
    if len(line) + around <= WIDTH:
        return [line]
    indent = line[: len(line) - len(line.lstrip())]
    if line.endswith(","):  # it is an argument of a call, and no statement
        return [
            f"{indent}{part}"
            for part in _argument_lines(line.strip().rstrip(","), len(indent) + around)
        ]
    try:
        (statement,) = ast.parse(line.strip()).body
    except (SyntaxError, ValueError):  # the head of a loop or of a function
        return [line]
    value = getattr(statement, "value", None)
    if not isinstance(statement, ast.Assign | ast.AugAssign | ast.Return) and not isinstance(
        value, ast.Call
    ):
        return [line]
    whole = ast.unparse(statement)
    if not isinstance(value, ast.expr) or not whole.endswith(ast.unparse(value)):
        return [line]
    opening = whole[: len(whole) - len(ast.unparse(value))]
    parts = _parts(opening, value, len(indent) + around)
    # A broken statement must parse to the same tree; otherwise the line stays long.
    same = ast.dump(ast.parse("\n".join(parts))) == ast.dump(ast.parse(whole))
    return [f"{indent}{part}" for part in parts] if same else [line]


def _argument_lines(text: str, indent: int) -> list[str]:
    """Breaks a line of call arguments if it holds a single call or sum."""
    try:
        call = ast.parse(f"_({text})", mode="eval").body
    except (SyntaxError, ValueError):
        return [f"{text},"]
    items: list[tuple[str, ast.expr]] = []
    if isinstance(call, ast.Call):
        items = [*(("", a) for a in call.args), *((f"{k.arg}=", k.value) for k in call.keywords)]
    if len(items) != 1 or not isinstance(items[0][1], ast.Call):
        return [f"{text},"]
    parts = _parts(*items[0], indent)
    return [*parts[:-1], f"{parts[-1]},"]


def _parts(opening: str, value: ast.expr, indent: int) -> list[str]:
    """The lines of `opening` and an expression, without their indent."""
    if len(opening) + len(ast.unparse(value)) + indent <= WIDTH:
        return [opening + ast.unparse(value)]
    if isinstance(value, ast.Call):
        items = [ast.unparse(a) for a in value.args]
        items += [
            f"{k.arg}={ast.unparse(k.value)}" if k.arg else f"**{ast.unparse(k.value)}"
            for k in value.keywords
        ]
        if not items:
            return _method_lines(opening, value, indent)
        head = f"{opening}{ast.unparse(value.func)}("
        if len(head) + indent > WIDTH:
            return _method_lines(opening, value, indent)
        if all(len(item) + indent + 5 <= WIDTH for item in items):
            return fold_items(head, items, ")", " " * indent)
        inside = [part for a in value.args for part in _item(a, indent + 4)]
        inside += [f"    {item}," for item in items[len(value.args) :]]
        return [head, *inside, ")"]
    if isinstance(value, ast.BinOp):
        wrapped = opening.rstrip().endswith(("=", "return"))
        left, right = _terms(value)
        inside = [f"    {left}", *(f"    {sign} {term}" for sign, term in right)]
        return [f"{opening}(", *inside, ")"] if wrapped else [opening + ast.unparse(value)]
    return [opening + ast.unparse(value)]


def _method_lines(opening: str, value: ast.Call, indent: int) -> list[str]:
    """Breaks a method call on a call, such as `nn.Sequential(...).eval()`, inside the inner call."""
    if not isinstance(value.func, ast.Attribute) or not isinstance(value.func.value, ast.Call):
        return [opening + ast.unparse(value)]
    parts = _parts(opening, value.func.value, indent)
    arguments_text = ast.unparse(ast.Call(ast.Name("_"), value.args, value.keywords)).removeprefix(
        "_"
    )
    return [*parts[:-1], f"{parts[-1]}.{value.func.attr}{arguments_text}"]


def _item(argument: ast.expr, indent: int) -> list[str]:
    parts = (
        _parts("", argument, indent)
        if isinstance(argument, ast.Call)
        else _sum_lines(argument, indent)
    )
    return [f"    {part}" for part in [*parts[:-1], f"{parts[-1]},"]]


def _sum_lines(argument: ast.expr, indent: int) -> list[str]:
    text = ast.unparse(argument)
    if not isinstance(argument, ast.BinOp) or len(text) + indent < WIDTH:
        return [text]
    left, right = _terms(argument)
    lines = [left]
    for sign, term in right:
        inner = ast.parse(term, mode="eval").body
        if len(term) + indent + 4 > WIDTH and isinstance(inner, ast.Call):
            first, *following = _parts("", inner, indent)
            lines += [f"{sign} {first}", *following]
        elif len(term) + indent + 4 <= WIDTH or not (
            isinstance(inner, ast.BinOp) and term.startswith("(")
        ):
            lines.append(f"{sign} {term}")
        else:
            lines += [f"{sign} (", *(f"    {part}" for part in _sum_lines(inner, indent + 4)), ")"]
    return lines


def _terms(value: ast.BinOp) -> tuple[str, list[tuple[str, str]]]:
    """Splits `a + (b + c)` into a, and (+, b + c), at the outermost operators of one precedence."""
    if type(value.op) not in BINARY_SIGNS:
        return ast.unparse(value), []
    kinds = (ast.Add, ast.Sub) if isinstance(value.op, ast.Add | ast.Sub) else (type(value.op),)
    right: list[tuple[str, str]] = []
    left: ast.expr = value
    while (
        isinstance(left, ast.BinOp) and isinstance(left.op, kinds) and type(left.op) in BINARY_SIGNS
    ):
        text = ast.unparse(ast.BinOp(ast.Name("_"), left.op, left.right))[
            len("_ ") :
        ]  # with the brackets it needs
        sign, _, term = text.partition(" ")
        right.insert(0, (sign, term))
        left = left.left
    return ast.unparse(ast.BinOp(left, kinds[0](), ast.Name("_"))).rpartition(
        f" {BINARY_SIGNS[kinds[0]]} "
    )[0], right
