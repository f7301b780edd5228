"""Selects the operators that a kernel's text shows, among those that Inductor attributes to the
kernel.

Inductor names all operators that led to a result: a kernel that reorders a weight is called a
convolution, and a kernel
that stores zeros a whole chain of functions.
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
"""Operators of kernels without computation."""
COPY, FILL = ("clone",), ("full",)
"""Operators reported for a kernel that computes nothing: COPY if it reads, FILL otherwise."""

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
"""Operator pattern -> pattern of the text of a kernel that computes it; unlisted operators are
accepted.
"""
PRODUCT = r"convolution|(add|b|baddb)?mm$"
OTHER_SUMS = r"(log_)?softmax|sum|prepare_softmax_online|linalg_vector_norm"
OTHER_REDUCTIONS = rf"{OTHER_SUMS}|var|mean|amax|amin"
FEW_TERMS, MANY_TERMS = 2, 4
"""Minimum numbers of products of two loaded values, and of products with one, in a written-out
convolution.
"""


def operators_shown(function: ast.FunctionDef, operators: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the operators the kernel may compute; COPY or FILL if there are none."""
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
    """Returns whether loaded values are multiplied and summed, as in a convolution or matrix
    product.
    """
    text = ast.unparse(function)
    loads = re.findall(r"^\s*(\w+) = tl\.load\((.*)$", text, re.M)
    adds = re.search(r"tl\.sum|_tmp\d+ \+", text) is not None
    loaded = {name for name, address in loads if not adds or re.search(r"\br\d_", address)}
    factors = [
        ({ast.unparse(n.left)} & loaded, {ast.unparse(n.right)} & loaded)
        for n in ast.walk(function)
        if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mult)
    ]
    # Products of two loaded values are certain; those with one may be a scale.
    both, single = sum(bool(a and b) for a, b in factors), sum(bool(a or b) for a, b in factors)
    alone = not any(
        re.match(OTHER_SUMS if adds else OTHER_REDUCTIONS, _plain(o)) for o in operators
    )
    few_terms, many_terms = (1, 1) if adds else (FEW_TERMS, MANY_TERMS)
    return both >= few_terms or (single >= many_terms and alone)


def _values(function: ast.FunctionDef) -> list[str]:
    """Returns the texts of computed values, without addresses, masks and positions."""
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
