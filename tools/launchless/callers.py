"""A function that gives something back is no kernel: a kernel of ours that calls it with blocks is written after
its module.
"""

from __future__ import annotations

from kernelwright.tools.launchless.candidate_signatures import AssumedSignature
from kernelwright.tools.launchless.module_functions import Module, parameters

BLOCKS = {(): "0", (128,): "tl.arange(0, 128)", (32, 32): "tl.arange(0, 32)[:, None] * 32 + tl.arange(0, 32)[None, :]"}
"""Places of the elements, by the block's shape; () is a number by itself."""
_CALLER = """

import triton as {name}_triton
import triton.language as {name}_tl


@{name}_triton.jit
def {name}({parameters}):
    {name}_at = {at}
    {function}({arguments})
"""


def caller_name(function: str, number: int) -> str:
    """The name of the kernel that calls it the `number`th way."""
    return f"assumed_call_{number}_of_{function}"


def with_caller(module: Module, function: str, number: int, way: AssumedSignature) -> str:
    """The text that is put after the module's."""
    name = caller_name(function, number)
    names = parameters(module.functions[function])
    given = [f"{n}: {name}_tl.constexpr" if n in way.constants else n for n in names]
    passed = [f"{n}={name}_tl.load({n} + {name}_at)" if n in way.loaded else f"{n}={n}" for n in names]
    return _CALLER.format(
        name=name, parameters=", ".join(given), at=BLOCKS[way.block].replace("tl.", f"{name}_tl."), function=function,
        arguments=", ".join(passed),
    )  # fmt: skip
