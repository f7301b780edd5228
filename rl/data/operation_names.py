"""Canonical names of operations: functions, methods, operators and modules of torch under a
common name.
"""

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
"""Operations on layout and type, which do not make another problem."""
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
    """Returns the common name of all spellings of an operation, in lower case without
    underscores. `clamp(x, min=0)` is relu; GELU keeps its form.
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
    """Returns `matmul` for a product of two operands summed over a single index; other equations
    by themselves, with letters in order of appearance.
    """
    equation = _text(node.args[0]).replace(" ", "") if node.args else ""
    if not equation:
        return "einsum"
    operands, _, out = equation.partition("->")
    sides = operands.split(",")
    summed = set("".join(sides)) - set(out)
    if len(sides) == 2 and len(summed) == 1 and all(summed <= set(side) for side in sides):
        return "matmul"
    # Letters in order of appearance: "bik,bkj->bij" and "nab,nbc->nac" are the same equation.
    letters: dict[str, str] = {}
    renamed = ""
    for character in equation:
        if character.isalpha():
            character = letters.setdefault(character, chr(97 + len(letters)))
        renamed += character
    return f"einsum:{renamed}"


def _only_zero_below(node: ast.Call) -> bool:
    """Returns whether a clamp has the single bound `min=0`."""
    keywords = {keyword.arg: keyword.value for keyword in node.keywords}
    if set(keywords) != {"min"} or len(node.args) > 1:
        return False
    bound = keywords["min"]
    return isinstance(bound, ast.Constant) and bound.value == 0


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
