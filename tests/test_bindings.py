"""Names that a text binds."""

from __future__ import annotations

import ast

import pytest

from kernelwright.bindings import binding_statement, bound_names, function_at_top


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("def draw(n): inner = 1", ["draw"]),
        ("class Model:\n    width = 1", ["Model"]),
        ("a, (b, *c) = values", ["a", "b", "c"]),
        ("import torch.nn, numpy as np\nfrom x import y as z, w", ["torch", "np", "z", "w"]),
        ("if flag:\n    def draw(): pass\nelse:\n    other: int = 2", ["draw", "other"]),
        ("for i in range(3):\n    with open(i) as file: total += i", ["i", "file", "total"]),
        (
            "if (n := 3): pass\nvalues = [k for k in range(n)]\nf = lambda q: q",
            ["n", "values", "f"],
        ),
        (
            "match point:\n    case (x, *rest): pass\n    case {'k': v, **more}: pass",
            ["x", "rest", "more", "v"],
        ),
        ("names.append(1)\nnames[0] = 2\nprint(names)", []),
    ],
)
def test_a_name_counts_whatever_binds_it(text: str, names: list[str]):
    assert bound_names(ast.parse(text)) == names


def test_the_last_statement_that_binds_a_name_is_the_one_that_holds():
    tree = ast.parse(
        "def draw(): pass\nif flag:\n    draw = None\ndef draw(n): pass\ndraw = wrapped(draw)"
    )
    assert binding_statement(tree, "draw") is tree.body[-1]
    assert binding_statement(tree, "flag") is None
    assert function_at_top(tree, "draw") is tree.body[2]
