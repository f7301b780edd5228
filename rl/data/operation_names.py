"""The spellings of one operation: functions, methods, operators and modules of torch under one name."""

from __future__ import annotations

import ast
import re

OPERATION_NAMES = {
    "Add": "add",
    "Sub": "sub",
    "Mult": "mul",
    "Div": "div",
    "Pow": "pow",
    "MatMult": "matmul",
    "FloorDiv": "floordiv",
}
COMMUTATIVE = frozenset({"add", "mul", "maximum", "minimum"})
LAYOUT_AND_TYPE_OPERATIONS = frozenset(
    [
        "contiguous",
        "to",
        "float",
        "double",
        "half",
        "bfloat16",
        "type",
        "view",
        "reshape",
        "flatten",
        "unflatten",
        "unsqueeze",
        "squeeze",
        "expand",
        "expandas",
        "clone",
        "detach",
        "identity",
        "viewas",
        "values",
    ]
)
"""Layout and type: neither makes another problem."""
_ALIASES = {
    "mm": "matmul", "bmm": "matmul", "dot": "matmul", "mv": "matmul", "inner": "matmul",
    "t": "transpose", "permute": "transpose", "swapaxes": "transpose", "swapdims": "transpose", "movedim": "transpose",
    "multiply": "mul", "truedivide": "div", "divide": "div", "subtract": "sub", "square": "pow", "negative": "neg",
    "absolute": "abs",
    "clip": "clamp", "clampmin": "clamp", "clampmax": "clamp", "hardtanh": "clamp", "relu6": "clamp",
    "swish": "silu", "amax": "max", "amin": "min", "norm": "norm", "vectornorm": "norm", "specialsoftmax": "softmax",
    "softmax2d": "softmax", "layernorm": "layernorm", "l1loss": "l1loss", "huberloss": "smoothl1loss",
    "smoothl1loss": "smoothl1loss",
    "crossentropyloss": "crossentropy", "mseloss": "mseloss", "kldivloss": "kldiv", "indexselect": "gather",
    "take": "gather",
    "scaleddotproductattention": "attention", "cossimilarity": "cosinesimilarity",
}  # fmt: skip


def canonical_operation(name: str, node: ast.Call) -> str:
    """Returns one name for all spellings of an operation, without underscores and case. `clamp(x, min=0)` is relu; GELU
    keeps its form.
    """
    plain = name.replace("_", "").lower()
    plain = _ALIASES.get(plain, plain)
    plain = re.sub(r"^(batchnorm|instancenorm|dropout)[123]d$", r"\1", plain)
    plain = re.sub(r"^adaptive(avg|max)pool[123]d$", r"adaptive\1pool", plain)
    if plain == "clamp" and _only_zero_below(node):
        return "relu"
    if plain == "gelu" and any(
        k.arg == "approximate" and _text(k.value) == "tanh" for k in node.keywords
    ):
        return "gelu:tanh"
    return plain


def einsum_name(node: ast.Call) -> str:
    """A product of two that sums one index away is a matmul; others by their equation, letters in order of
    appearance.
    """
    equation = _text(node.args[0]) if node.args else ""
    if not equation:
        return "einsum"
    equation = equation.replace(" ", "")
    operands, _, out = equation.partition("->")
    sides = operands.split(",")
    summed = set("".join(sides)) - set(out)
    if len(sides) == 2 and len(summed) == 1 and all(summed <= set(side) for side in sides):
        return "matmul"
    letters: dict[str, str] = {}
    return "einsum:" + "".join(
        letters.setdefault(c, chr(97 + len(letters))) if c.isalpha() else c for c in equation
    )


def _only_zero_below(node: ast.Call) -> bool:
    named = {k.arg: k.value for k in node.keywords}
    bounds = [v for k, v in named.items() if k in ("min", "max")]
    return (
        set(named) == {"min"}
        and isinstance(bounds[0], ast.Constant)
        and bounds[0].value == 0
        and len(node.args) <= 1
    )


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
