"""Functions `get_inputs_NAME` of a file: further calls that a kernel is for.

A file that has these alone gets a `get_inputs`, which gives what the first one gives:

    def get_inputs_decode(): ...
    def get_inputs_prefill(): ...
                                      ->    def get_inputs():
                                                return get_inputs_decode()
"""

from __future__ import annotations

import ast

from kernelwright.bindings import bound_names
from kernelwright.tools.problem import Problem
from kernelwright.tools.sizing.drawn_sizes import NAME_OF_OTHER_INPUTS, functions_of


def has_other_inputs(problem: Problem) -> bool:
    """Whether a problem has functions `get_inputs_NAME`."""
    return any(NAME_OF_OTHER_INPUTS.fullmatch(name) for name in functions_of(problem))


def with_first_inputs(text: str) -> str:
    """Returns a file with a `get_inputs` if it has functions `get_inputs_NAME` alone; otherwise unchanged."""
    if "get_inputs_" not in text:
        return text
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return text
    names = bound_names(tree)
    others = [name for name in names if NAME_OF_OTHER_INPUTS.fullmatch(name)]
    if "get_inputs" in names or not others:
        return text
    return f"{text.rstrip()}\n\n\ndef get_inputs():\n    return {others[0]}()\n"
