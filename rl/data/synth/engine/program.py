"""A finished program: the reference and the candidate as texts, in the ways that people write them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernelwright.rl.data.synth.engine.launching import write_launches
from kernelwright.rl.data.synth.engine.naming import rename_identifiers
from kernelwright.rl.data.synth.engine.sketch import Sketch


@dataclass(frozen=True)
class DrawnProgram:
    """One problem and its answer. `ops`: the chain in order."""

    name: str
    family: str
    reference: str
    candidate: str
    ops: tuple[str, ...]

    @property
    def depth(self) -> int:
        """The number of operations in the chain."""
        return len(self.ops)


def finish_program(sketch: Sketch, returns: str = "x") -> DrawnProgram:
    """Writes a sketch out."""
    name = "_".join(sketch.ops) or sketch.family
    reference, candidate = rename_identifiers(
        sketch, _reference(sketch, returns), _candidate(sketch)
    )
    return DrawnProgram(name, sketch.family, reference, candidate, tuple(sketch.ops))


def _reference(sketch: Sketch, returns: str) -> str:
    constants = _constants(sketch)
    model, sizes = _model(sketch, returns), _sizes(sketch, constants)
    parts = [model, sizes] if sketch.chance(0.7) else [sizes, model]
    body = "\n\n".join([*parts, _getters(sketch, constants)])
    math = ["import math"] if "math." in body else []
    functional = ["import torch.nn.functional as F"] if "F." in body else []
    return (
        "\n".join([*math, "import torch", "import torch.nn as nn", *functional])
        + "\n\n\n"
        + body
        + "\n"
    )


def _model(sketch: Sketch, returns: str) -> str:
    lines = ["class Model(nn.Module):"]
    named = sketch.chance(0.4)
    typed = sketch.chance(0.5)
    arguments = "".join(_argument(sketch, name, value, typed) for name, value in sketch.arguments)
    if sketch.reference_init or sketch.chance(0.6):
        lines += [
            f"    def __init__(self{arguments}):",
            f"        super({'Model, self' if named else ''}).__init__()",
        ]
        lines += [f"        {line}" for line in sketch.reference_init] + [""]
    inputs = [name for name, _ in sketch.inputs]
    kinds = {name: "torch.Tensor" if "(" in text else "float" for name, text in sketch.inputs}
    shown = ", ".join(f"{name}: {kinds[name]}" if typed else name for name in inputs)
    lines.append(f"    def forward(self, {shown}){' -> torch.Tensor' if typed else ''}:")
    lines += [f"        {line}" for line in _forward(sketch, returns)]
    return "\n".join(lines)


def _forward(sketch: Sketch, returns: str) -> list[str]:
    """The statements; the last often in the return, or several in one expression; what is computed under a name of
    its own at times.
    """
    lines = list(sketch.reference)
    if returns == "x" and lines and lines[-1].startswith("x = ") and sketch.chance(0.5):
        lines.append(_nested(lines, 1 if sketch.chance(0.6) else 4))
    else:
        lines.append(f"return {returns}")
    name = sketch.free(sketch.pick(("out", "y", "h", "result")))
    return _renamed(lines, name) if returns == "x" and sketch.chance(0.25) else lines


def _nested(lines: list[str], most: int) -> str:
    """Takes up to `most` statements from the end, each put where the next one reads it, and returns their value."""
    last = lines.pop().removeprefix("x = ")
    for _ in range(most - 1):
        if not lines or not lines[-1].startswith("x = ") or len(re.findall(r"\bx\b", last)) != 1:
            break
        before, after = re.split(r"\bx\b", last)
        last = f"{before}({lines.pop().removeprefix('x = ')}){after}"
    return f"return {last}"


def _renamed(lines: list[str], name: str) -> list[str]:
    """`x = f(x)` as `name = f(x)`, and `name` wherever it is read later."""
    renamed: list[str] = []
    for at, line in enumerate(lines):
        if line.startswith("x = "):
            first = [f"{name} = {line.removeprefix('x = ')}"]
            return [
                *renamed,
                *first,
                *(re.sub(r"(?<![\w.])x\b(?!=)", name, later) for later in lines[at + 1 :]),
            ]
        renamed.append(line)
    return renamed


def _constants(sketch: Sketch) -> dict[str, str]:
    """Arguments of the model whose values stand at the module's level under the same name: all or none of them, as
    people do.
    """
    if sketch.chance(0.4):
        return {}
    known = {*sketch.sizes, "None"}
    return {name: value for name, value in _given(sketch) if not {name, value} & known}


def _sizes(sketch: Sketch, constants: dict[str, str]) -> str:
    lines = [f"{name} = {full}" for name, (full, _) in sketch.sizes.items()]
    lines += [f"{name} = {value}" for name, value in constants.items()]
    small = ", ".join(f'"{name}": {cpu}' for name, (_, cpu) in sketch.sizes.items())
    return "\n".join([*lines, "", f"CPU_SIZES = {{{small}}}"])


def _getters(sketch: Sketch, constants: dict[str, str]) -> str:
    made = [text for _, text in sketch.inputs]
    shadowed = any(name in sketch.sizes or name in constants for name, _ in sketch.inputs)
    if sketch.chance(0.5) and not shadowed:
        body = [f"{name} = {text}" for name, text in sketch.inputs]
        body.append(f"return [{', '.join(name for name, _ in sketch.inputs)}]")
    else:
        body = [f"return [{', '.join(made)}]"]
    lines = "\n".join(f"    {line}" for line in body)
    values = ", ".join(name if name in constants else value for name, value in _given(sketch))
    return f"def get_inputs():\n{lines}\n\n\ndef get_init_inputs():\n    return [{values}]"


def _argument(sketch: Sketch, name: str, value: str, typed: bool) -> str:
    kind = (
        "tuple"
        if value.startswith("(")
        else "float"
        if "." in value
        else "bool"
        if value in ("True", "False")
        else "int"
    )
    default = sketch.defaults.get(name) if name in _last(sketch) else None
    shown = f", {name}: {kind}" if typed else f", {name}"
    return shown if default is None else f"{shown} = {default}" if typed else f"{shown}={default}"


def _last(sketch: Sketch) -> set[str]:
    """Arguments after which all have a default."""
    names = [name for name, _ in sketch.arguments]
    return {name for i, name in enumerate(names) if all(n in sketch.defaults for n in names[i:])}


def _given(sketch: Sketch) -> list[tuple[str, str]]:
    """Names and values of get_init_inputs: those at the end that are the default are left out."""
    given = list(sketch.arguments)
    while given and sketch.defaults.get(given[-1][0]) == given[-1][1]:
        given.pop()
    return given


def _candidate(sketch: Sketch) -> str:
    kernels, host = write_launches(sketch)
    body = "\n\n\n".join([*kernels, _model_new(sketch, host)])
    head = [
        "import torch",
        "import torch.nn as nn",
        "import triton",
        "import triton.language as tl",
    ]
    if "libdevice." in body:
        head.append("from triton.language.extra import libdevice")
    return "\n".join(head) + "\n\n\n" + body + "\n"


def _model_new(sketch: Sketch, host: list[str]) -> str:
    lines = ["class ModelNew(nn.Module):"]
    arguments = "".join(
        _argument(sketch, name, value, typed=False) for name, value in sketch.arguments
    )
    if arguments or sketch.init:
        lines += [f"    def __init__(self{arguments}):", "        super().__init__()"]
        lines += [f"        {line}" for line in sketch.init] + [""]
    lines.append(f"    def forward(self, {', '.join(name for name, _ in sketch.inputs)}):")
    lines += [f"        {line}" for line in [*host, "return out"]]
    return "\n".join(lines)


def kernel(name: str, parameters: list[str], body: list[str]) -> str:
    """One kernel's text; blocks and the like are constexprs."""
    shown = ", ".join(
        f"{p}: tl.constexpr" if re.match(r"(BLOCK|GROUP$|KERNEL|STRIDE|PADDING|DILATION)", p) else p
        for p in parameters
    )
    return "\n".join(["@triton.jit", f"def {name}({shown}):", *body])
