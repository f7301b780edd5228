"""Writes a finished program: reference and candidate as texts, in the varied ways of human authors.

The statements of a sketch may be merged into the return, nested, or renamed; the computation is the
same:

    x = torch.maximum(x, self.bias)        x = torch.maximum(x, self.bias)
    x = F.tanhshrink(x)               ->   return torch.sin((F.relu(((F.tanhshrink(x)) * 0.25))))
    x = x * 0.25
    x = F.relu(x)
    x = torch.sin(x)
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernelwright.rl.data.synth.engine.launching import write_launches
from kernelwright.rl.data.synth.engine.naming import rename_identifiers
from kernelwright.rl.data.synth.engine.sketch import Sketch


@dataclass(frozen=True)
class DrawnProgram:
    """A problem and its answer. `ops`: the chain in order."""

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
    """Writes the texts of a sketch."""
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
    imports = ["import torch", "import torch.nn as nn"]
    if "math." in body:
        imports.insert(0, "import math")
    if "F." in body:
        imports.append("import torch.nn.functional as F")
    return "\n".join(imports) + "\n\n\n" + body + "\n"


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
    # An input is a tensor if its expression is a call, else a number.
    kinds = {name: "torch.Tensor" if "(" in text else "float" for name, text in sketch.inputs}
    shown = ", ".join(f"{name}: {kinds[name]}" if typed else name for name in inputs)
    lines.append(f"    def forward(self, {shown}){' -> torch.Tensor' if typed else ''}:")
    lines += [f"        {line}" for line in _forward(sketch, returns)]
    return "\n".join(lines)


def _forward(sketch: Sketch, returns: str) -> list[str]:
    """Returns the statements of forward. The last is often merged into the return, sometimes
    several are nested, and sometimes the result has its own name.
    """
    lines = list(sketch.reference)
    if returns == "x" and lines and lines[-1].startswith("x = ") and sketch.chance(0.5):
        lines.append(_nested(lines, 1 if sketch.chance(0.6) else 4))
    else:
        lines.append(f"return {returns}")
    # Drawn in any case, so the draws after it do not depend on the branch.
    name = sketch.free(sketch.pick(("out", "y", "h", "result")))
    return _renamed(lines, name) if returns == "x" and sketch.chance(0.25) else lines


def _nested(lines: list[str], most: int) -> str:
    """Removes up to `most` statements from the end, nested into each other, and returns their
    value.
    """
    last = lines.pop().removeprefix("x = ")
    for _ in range(most - 1):
        # Only a statement read exactly once can be nested.
        if not lines or not lines[-1].startswith("x = ") or len(re.findall(r"\bx\b", last)) != 1:
            break
        before, after = re.split(r"\bx\b", last)
        last = f"{before}({lines.pop().removeprefix('x = ')}){after}"
    return f"return {last}"


def _renamed(lines: list[str], name: str) -> list[str]:
    """Rewrites `x = f(x)` as `name = f(x)`, and later reads of x as `name`."""
    renamed: list[str] = []
    for at, line in enumerate(lines):
        if line.startswith("x = "):
            renamed.append(f"{name} = {line.removeprefix('x = ')}")
            for later in lines[at + 1 :]:
                renamed.append(re.sub(r"(?<![\w.])x\b(?!=)", name, later))
            return renamed
        renamed.append(line)
    return renamed


def _constants(sketch: Sketch) -> dict[str, str]:
    """Returns model arguments whose values are module-level names: all or none, as people do."""
    if sketch.chance(0.4):
        return {}
    size_names = {*sketch.sizes, "None"}
    return {name: value for name, value in _init_values(sketch) if not {name, value} & size_names}


def _sizes(sketch: Sketch, constants: dict[str, str]) -> str:
    lines = [f"{name} = {full}" for name, (full, _) in sketch.sizes.items()]
    lines += [f"{name} = {value}" for name, value in constants.items()]
    small = ", ".join(f'"{name}": {cpu}' for name, (_, cpu) in sketch.sizes.items())
    return "\n".join([*lines, "", f"CPU_SIZES = {{{small}}}"])


def _getters(sketch: Sketch, constants: dict[str, str]) -> str:
    # A local variable must not hide a module-level size or constant.
    shadowed = any(name in sketch.sizes or name in constants for name, _ in sketch.inputs)
    if sketch.chance(0.5) and not shadowed:
        body = [f"{name} = {text}" for name, text in sketch.inputs]
        body.append(f"return [{', '.join(name for name, _ in sketch.inputs)}]")
    else:
        expressions = [text for _, text in sketch.inputs]
        body = [f"return [{', '.join(expressions)}]"]
    lines = "\n".join(f"    {line}" for line in body)
    values = ", ".join(name if name in constants else value for name, value in _init_values(sketch))
    return f"def get_inputs():\n{lines}\n\n\ndef get_init_inputs():\n    return [{values}]"


def _argument(sketch: Sketch, name: str, value: str, typed: bool) -> str:
    """Returns an argument of `__init__` after its comma, with type and default if drawn."""
    default = sketch.defaults.get(name) if name in _last(sketch) else None
    if not typed:
        return f", {name}" if default is None else f", {name}={default}"
    text = f", {name}: {_type_of(value)}"
    return text if default is None else f"{text} = {default}"


def _type_of(value: str) -> str:
    if value.startswith("("):
        return "tuple"
    if "." in value:
        return "float"
    return "bool" if value in ("True", "False") else "int"


def _last(sketch: Sketch) -> set[str]:
    """Returns the arguments followed only by arguments with a default."""
    names = [name for name, _ in sketch.arguments]
    return {name for i, name in enumerate(names) if all(n in sketch.defaults for n in names[i:])}


def _init_values(sketch: Sketch) -> list[tuple[str, str]]:
    """Returns names and values of get_init_inputs, without trailing values equal to the defaults."""
    shown = list(sketch.arguments)
    # Trailing arguments equal to their defaults need not be passed.
    while shown and sketch.defaults.get(shown[-1][0]) == shown[-1][1]:
        shown.pop()
    return shown


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
    # A model without arguments and layers needs no constructor.
    if arguments or sketch.init:
        lines += [f"    def __init__(self{arguments}):", "        super().__init__()"]
        lines += [f"        {line}" for line in sketch.init] + [""]
    lines.append(f"    def forward(self, {', '.join(name for name, _ in sketch.inputs)}):")
    lines += [f"        {line}" for line in [*host, "return out"]]
    return "\n".join(lines)


def kernel(name: str, parameters: list[str], body: list[str]) -> str:
    """Returns a kernel's text; blocks and window sizes are constexprs."""
    shown = []
    for parameter in parameters:
        if re.match(r"(BLOCK|GROUP$|KERNEL|STRIDE|PADDING|DILATION)", parameter):
            parameter = f"{parameter}: tl.constexpr"
        shown.append(parameter)
    return "\n".join(["@triton.jit", f"def {name}({', '.join(shown)}):", *body])
