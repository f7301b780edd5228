"""Readable names for the parameters of a kernel."""

from __future__ import annotations

import ast
import re

from kernelwright.policies.inductor.tracing.execution import simple_path
from kernelwright.policies.inductor.values.complex_numbers import unwrapped_path
from kernelwright.policies.inductor.writing.expressions.host_numbers import PREFIX
from kernelwright.policies.inductor.writing.kernels import LoweredKernel
from kernelwright.policies.inductor.writing.launch import WrittenLaunch
from kernelwright.policies.inductor.writing.words.computed_sizes import name_of
from kernelwright.policies.inductor.writing.words.naming import plural, roles_of


def parameter_names(kernel: LoweredKernel, launches: list[WrittenLaunch]) -> dict[str, str]:
    """Returns the parameter names of a kernel: after the argument, if all launches pass the same."""
    names: dict[str, str] = {}
    by_value: dict[tuple[str, ...], str] = {}
    numbers = {"in": 0, "out": 0, "size": 0}
    roles = roles_of(kernel)
    for old in kernel.parameters:
        if old in kernel.blocks:
            continue
        # A name after the argument is right only if all launches pass the same.
        values = tuple(launch.arguments[old] for launch in launches)
        same = len(set(values)) == 1
        if "ptr" in old:
            name = (
                f"{simple_path(values[0])}_pointer"
                if same and re.fullmatch(r"[\w.\[\]']+", unwrapped_path(values[0]))
                else _numbered("out" if "out" in old else "in", numbers)
            )
        elif values in by_value:
            names[old] = by_value[values]
            continue
        elif same and values[0].isidentifier():
            name = values[0]
        elif old.startswith(PREFIX):
            name = "count" if values[0].startswith("float(") else "factor"
        elif old.endswith("numel"):
            name = plural(roles[old.removesuffix("numel")])
        else:
            name = (same and name_of(ast.parse(values[0], mode="eval").body)) or _numbered(
                "size", numbers
            )
        base, number = name.removesuffix("_pointer"), 2
        while name in names.values():
            name = (
                f"{base}_{number}"
                if "ptr" not in old
                else f"{base}_{'out_' * ('out' in old)}pointer"
            )
            base, number = (
                (base, number + 1)
                if name not in names.values()
                else (f"{base}_{number}", number + 1)
            )
        names[old] = name
        if "ptr" not in old:
            by_value[values] = name
    return names


def _numbered(word: str, numbers: dict[str, int]) -> str:
    numbers[word] += 1
    return {"in": f"input_{numbers[word]}_pointer", "out": f"output_{numbers[word]}_pointer"}.get(word,
        f"extent_{numbers[word]}")  # fmt: skip
