"""Repeated values and numbered names in the text of a kernel."""

from __future__ import annotations

import ast
import textwrap

from kernelwright.policies.inductor.writing.words.repeated_values import without_repetitions


def rewritten(text: str) -> str:
    tree = ast.parse(textwrap.dedent(text))
    [function] = tree.body
    assert isinstance(function, ast.FunctionDef)
    without_repetitions(function)
    return ast.unparse(tree)


def test_a_value_is_loaded_once_and_loops_share_names():
    text = rewritten(
        """
        def kernel(x_pointer, t_pointer, out_pointer, columns):
            t = tl.load(t_pointer)
            for first in tl.range(0, columns, 8):
                x = tl.load(x_pointer + first)
                largest = maximum(largest, x / t)
            t_2 = tl.load(t_pointer)
            for first in tl.range(0, columns, 8):
                x_2 = tl.load(x_pointer + first)
                total += tl.exp(x_2 / t_2 - largest)
        """
    )
    assert text.count("tl.load(t_pointer)") == 1
    assert "total += tl.exp(x / t - largest)" in text
    assert "_2" not in text


def test_a_load_after_a_store_and_a_changed_name_stay():
    text = """
        def kernel(x_pointer, out_pointer, n):
            x = tl.load(x_pointer + n)
            tl.store(out_pointer + n, x)
            x_2 = tl.load(x_pointer + n)
            n = n + 1
            n = n + 2
            y = foo(n)
            n = n + 3
            y_2 = foo(n)
            tl.store(out_pointer, x_2 + y + y_2)
        """
    assert rewritten(text) == ast.unparse(ast.parse(textwrap.dedent(text)))


def test_a_name_that_a_loop_takes_from_outside_keeps_its_number():
    text = """
        def kernel(x_pointer, n):
            x = tl.load(x_pointer)
            for first in tl.range(0, n, 8):
                x_2 = tl.load(x_pointer + first)
                total += x_2 * x
            for first in tl.range(0, n, 8):
                y = tl.load(x_pointer + first + 1)
                y_2 = tl.load(x_pointer + first + 2)
                total += y * y_2
        """
    assert rewritten(text) == ast.unparse(ast.parse(textwrap.dedent(text)))
