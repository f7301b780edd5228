"""The input precision of a draft's products."""

from __future__ import annotations

import ast


def use_tf32_products(function: ast.FunctionDef) -> None:
    """Lets every product of a kernel round its operands to tf32, in place."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "tl.dot":
            node.keywords = [k for k in node.keywords if k.arg != "input_precision"]
            node.keywords.append(ast.keyword("input_precision", ast.Constant("tf32")))
