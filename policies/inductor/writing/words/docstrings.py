"""Docstrings of a draft's kernels: its computation, tensors, and elements per program.

Example, of a kernel with one launch:

    \"\"\"Computes addmm, relu. Reads x (rows, 64) and first.weight (16, 64), writes first_matmul (rows, 16), in
    float32. A program covers ROW_BLOCK x COLUMN_BLOCK elements.\"\"\"
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Mapping, Sequence

from kernelwright.policies.inductor.syntax import nodes_in
from kernelwright.policies.inductor.values.complex_numbers import unwrapped_path
from kernelwright.policies.inductor.writing.kernels import LoweredKernel, description_of
from kernelwright.policies.inductor.writing.launch import WrittenLaunch
from kernelwright.policies.inductor.writing.tensor_forms import TensorForm
from kernelwright.policies.inductor.writing.words.naming import roles_of

DOCSTRING_WIDTH = 112
"""Characters of a line of a docstring, without its indentation."""
MAX_DESCRIBED_TENSORS = 6
"""Maximum number of tensors named in a docstring; beyond it, their number is stated."""


def docstring(
    kernel: LoweredKernel, launches: Sequence[WrittenLaunch], forms: Mapping[str, TensorForm]
) -> str:
    """Returns the lines of a kernel's docstring, indented by four spaces.

    forms: forms of the tensors by their expressions in forward. Tensors are named for a kernel with one launch: those
    of several launches differ.
    """
    sentences = [description_of(kernel)]
    if len(launches) == 1 and (tensors := _tensors(kernel, launches[0], forms)):
        sentences.append(tensors)
    if blocks := _blocks_of_a_program(kernel):
        sentences.append(f"A program covers {blocks} elements.")
    lines = textwrap.wrap(f'"""{" ".join(sentences)}"""', DOCSTRING_WIDTH)
    return "\n".join(f"    {line}" for line in lines)


def _tensors(kernel: LoweredKernel, launch: WrittenLaunch, forms: Mapping[str, TensorForm]) -> str:
    """Returns the sentence on a launch's reads and writes; empty if the form of a tensor is unknown."""
    written_pointers = _stored_pointers(kernel)
    read: list[str] = []
    written: list[str] = []
    for parameter, value in launch.arguments.items():
        if "ptr" not in parameter:
            continue
        tensors = written if parameter in written_pointers else read
        if value not in tensors:
            tensors.append(value)
    named = [*read, *(value for value in written if value not in read)]
    if not written or len(named) > MAX_DESCRIBED_TENSORS or not set(named) <= set(forms):
        return ""
    dtypes = {forms[value].dtype for value in named}
    mixed = len(dtypes) > 1
    reading = (
        f"Reads {_listed([_described(v, forms, mixed) for v in read])}, writes"
        if read
        else "Writes"
    )
    writing = _listed([_described(v, forms, mixed) for v in written])
    ending = "" if mixed else f", in {dtypes.pop()}"
    return f"{reading} {writing}{ending}."


def _described(value: str, forms: Mapping[str, TensorForm], mixed: bool) -> str:
    """Returns a tensor as `first.weight (16, 64)`, with its dtype if the tensors of the launch differ in it."""
    form = forms[value]
    shape = ", ".join(form.shape) + "," * (len(form.shape) == 1)
    name = unwrapped_path(value).removeprefix("self.")
    return f"{name} ({shape}) {form.dtype}" if mixed else f"{name} ({shape})"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _stored_pointers(kernel: LoweredKernel) -> set[str]:
    """Returns the parameters that a kernel stores through."""
    stored: set[str] = set()
    for call in nodes_in(kernel.function, ast.Call):
        function = ast.unparse(call.func)
        if function == "tl.store" or function.startswith("tl.atomic"):
            stored |= {node.id for node in nodes_in(call.args[0], ast.Name) if "ptr" in node.id}
    return stored


def _blocks_of_a_program(kernel: LoweredKernel) -> str:
    """Returns the block sizes of the result's axes, slowest first, such as `ROW_BLOCK x COLUMN_BLOCK`."""
    roles = roles_of(kernel)
    sides = [block.removesuffix("BLOCK").lower() for block in kernel.blocks]
    blocks = [f"{roles[side].upper()}_BLOCK" for side in sides if side in "xyz"]
    return " x ".join(reversed(blocks))
