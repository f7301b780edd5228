"""Which of the operators that Inductor names for a kernel its text shows. It names all that led to what the kernel
writes: a kernel that brings a weight into another order of memory is said to be a convolution, and one that stores
zeros a whole chain of functions.
"""

from __future__ import annotations

import ast
import re

NON_COMPUTING_OPERATORS = {
    "view",
    "permute",
    "unsqueeze",
    "squeeze",
    "expand",
    "clone",
    "slice",
    "select",
    "transpose",
    "t",
    "_unsafe_view",
    "alias",
    "kernelwright.steps",
    "kernelwright.attention",
    "full",
    "full_like",
    "scalar_tensor",
    "prims.iota",
    "prims.convert_element_type",
    "lift_fresh_copy",
    "copy",
    "arange",
    "zeros",
    "zeros_like",
    "ones",
    "ones_like",
    "empty_like",
}
"""Operators that a kernel may have and compute nothing."""
COPY, FILL = ("clone",), ("full",)
"""What is said of a kernel that computes nothing, and of one that reads nothing either."""

PLACE = re.compile(r"([xyz]|r\d_)(index|mask|offset|base|\d+)$|_mask$|[XYZR]\d?_?BLOCK$")
"""Names of places of elements, which are no values."""

SUMS = r"tl\.sum|\b_tmp\d+ \+|welford|tl\.dot"
SIGNS = (
    (r"(log_)?sigmoid|silu|hardsigmoid", r"sigmoid|exp|minimum"), ("tanh", "tanh|exp"), ("erf|gelu", "erf|tanh"),
    (r"log_softmax|logsumexp", "log|exp"), ("(exp|exp2|expm1)$", "exp"), (r"log(2|10|1p)?$", "log"), ("rsqrt", "sqrt"),
    ("sqrt", "sqrt"),
    ("sin$", "sin"), ("cos$", "cos"), ("neg$", "-"), ("sub$|rsub$", r"-|\+"), ("add$", r" \+ "),
    ("mul$", r" \* "), ("div$|reciprocal", r" / | \* "),
    ("pow$", r" \* | \*\* |pow|sqrt| / "), ("mean$", SUMS + r"| / "),
    (r"var(_mean)?$", SUMS + r"|rsqrt| / "), ("(?<!cum)sum$", SUMS + r"| \+ "), ("prepare_softmax_online", "max|exp"),
    ("clamp|relu|hardtanh|maximum|minimum", "max|min|where|clamp"),
)  # fmt: skip
"""An operator -> what is in the text of a kernel that computes it; of others nothing is asked."""
PRODUCT = r"convolution|(add|b|baddb)?mm$"
OTHER_SUMS = r"(log_)?softmax|sum|prepare_softmax_online|linalg_vector_norm"
OTHER_REDUCTIONS = rf"{OTHER_SUMS}|var|mean|amax|amin"
FEW_TERMS, MANY_TERMS = 2, 4
"""Products of two inputs, and products with one, from which on a kernel without a loop is a convolution written out."""


def operators_shown(function: ast.FunctionDef, operators: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the operators that the kernel may compute; COPY or FILL where it can be none of them."""
    values = _values(function)
    text, products = "\n".join(values), _adds_products(function, operators)
    shown = tuple(
        o for o in operators if (products if re.match(PRODUCT, _plain(o)) else _is_shown(o, text))
    )
    if shown == operators or not set(shown) <= NON_COMPUTING_OPERATORS:
        return shown
    return COPY if "tl.load" in ast.unparse(function) else FILL


def _plain(operator: str) -> str:
    return operator.rpartition(".")[2].strip("_")


def _is_shown(operator: str, text: str) -> bool:
    signs = [sign for word, sign in SIGNS if re.match(word, _plain(operator))]
    return not signs or any(re.search(sign, text) for sign in signs)


def _adds_products(function: ast.FunctionDef, operators: tuple[str, ...]) -> bool:
    """Whether what is read is multiplied by what is read and added up, as a convolution or a matrix product does it."""
    text = ast.unparse(function)
    loads = re.findall(r"^\s*(\w+) = tl\.load\((.*)$", text, re.M)
    adds = re.search(r"tl\.sum|_tmp\d+ \+", text) is not None
    loaded = {name for name, address in loads if not adds or re.search(r"\br\d_", address)}
    factors = [
        ({ast.unparse(n.left)} & loaded, {ast.unparse(n.right)} & loaded)
        for n in ast.walk(function)
        if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mult)
    ]
    both, single = sum(bool(a and b) for a, b in factors), sum(bool(a or b) for a, b in factors)
    alone = not any(
        re.match(OTHER_SUMS if adds else OTHER_REDUCTIONS, _plain(o)) for o in operators
    )
    few_terms, many_terms = (1, 1) if adds else (FEW_TERMS, MANY_TERMS)
    return both >= few_terms or (single >= many_terms and alone)


def _values(function: ast.FunctionDef) -> list[str]:
    """The texts of what the kernel computes, without addresses, masks and places."""
    texts = []
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            names = [n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)]
            if not all(map(PLACE.search, names)):
                texts.append(
                    ast.unparse(
                        _WithoutAddresses().visit(ast.parse(ast.unparse(node.value), mode="eval"))
                    )
                )
    return texts


class _WithoutAddresses(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.expr:
        if ast.unparse(node.func) == "tl.load":
            return ast.Name("loaded", ast.Load())
        self.generic_visit(node)
        return node
