"""What a kernel calls its parameters."""

from __future__ import annotations

import ast
import re

from kernelwright.policies.inductor.tracing.graph import simple_path
from kernelwright.policies.inductor.values.complex_numbers import unwrapped_path
from kernelwright.policies.inductor.writing.kernels import LoweredKernel
from kernelwright.policies.inductor.writing.launch import WrittenLaunch
from kernelwright.policies.inductor.writing.words.computed_sizes import name_of
from kernelwright.policies.inductor.writing.words.naming import plural, roles_of


def parameter_names(kernel: LoweredKernel, launches: list[WrittenLaunch]) -> dict[str, str]:
    """What a kernel calls its parameters: after what is passed, where all launches pass the same."""
    found: dict[str, str] = {}
    by_value: dict[tuple[str, ...], str] = {}
    numbers = {"in": 0, "out": 0, "size": 0}
    roles = roles_of(kernel)
    for old in kernel.parameters:
        if old in kernel.blocks:
            continue
        values = tuple(launch.given[old] for launch in launches)
        same = len(set(values)) == 1
        if "ptr" in old:
            made = (
                f"{simple_path(values[0])}_pointer"
                if same and re.fullmatch(r"[\w.\[\]']+", unwrapped_path(values[0]))
                else _numbered("out" if "out" in old else "in", numbers)
            )
        elif values in by_value:
            found[old] = by_value[values]
            continue
        elif same and values[0].isidentifier():
            made = values[0]
        elif old.endswith("numel"):
            made = plural(roles[old.removesuffix("numel")])
        else:
            made = (same and name_of(ast.parse(values[0], mode="eval").body)) or _numbered(
                "size", numbers
            )
        base, number = made.removesuffix("_pointer"), 2
        while made in found.values():
            made = (
                f"{base}_{number}"
                if "ptr" not in old
                else f"{base}_{'out_' * ('out' in old)}pointer"
            )
            base, number = (
                (base, number + 1)
                if made not in found.values()
                else (f"{base}_{number}", number + 1)
            )
        found[old] = made
        if "ptr" not in old:
            by_value[values] = made
    return found


def _numbered(word: str, numbers: dict[str, int]) -> str:
    numbers[word] += 1
    return {"in": f"input_{numbers[word]}_pointer", "out": f"output_{numbers[word]}_pointer"}.get(word,
        f"extent_{numbers[word]}")  # fmt: skip
