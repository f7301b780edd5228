"""Several configurations written into a file as an `@triton.autotune` list."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from kernelwright.tools.parsing import parse_module
from kernelwright.tools.tuning.kernel_text.autotune_lists import lists_of
from kernelwright.tools.tuning.kernel_text.parameters import (
    Configuration,
    Parameter,
    ParameterRole,
    ParameterSpace,
)
from kernelwright.tools.tuning.kernel_text.places import Text
from kernelwright.tools.tuning.kernel_text.reading import TunableFile
from kernelwright.tools.tuning.kernel_text.resolving import Scopes
from kernelwright.tools.tuning.kernel_text.rewriting import apply_edits, rewrite

LAUNCH_OPTIONS = (ParameterRole.WARPS, ParameterRole.STAGES, ParameterRole.CTAS)


def with_list(
    file: TunableFile, space: ParameterSpace, configurations: Sequence[Configuration]
) -> str:
    """The file whose autotune list holds these configurations; empty where it has no such list, or where they differ in
    more than what one list can hold.

    Numbers outside the list are those of the first configuration.
    """
    listed = [p for p in space.parameters if p.config is not None]
    differing = {
        p.name
        for p in space.parameters
        if len({c.get(p.name, p.start) for c in configurations}) > 1
    }
    kernels = {k for p in listed if p.name in differing for k in p.kernels}
    if len(kernels) != 1 or differing - {p.name for p in listed}:
        return ""
    fixed = rewrite(file.source, space, configurations[0])
    tree = parse_module(fixed)
    text = Text(fixed)
    own = next((one for one in lists_of(tree, Scopes(tree)) if one.kernel in kernels), None)
    if own is None:
        return ""
    parameters = [p for p in listed if own.kernel in p.kernels]
    start, end = text.span(own.node)
    indent = " " * 8
    kept = [_written(text, own.configs[0].call, parameters, c) for c in configurations]
    lines = "".join(f"\n{indent}{one}," for one in dict.fromkeys(kept))
    return apply_edits(fixed, [(start, end, f"[{lines}\n    ]")])


def _written(
    text: Text, call: ast.Call, parameters: Sequence[Parameter], configuration: Configuration
) -> str:
    """One `triton.Config`, its constexprs in the order of the file's first one."""
    values = {n: configuration.get(p.name, p.start) for p in parameters for n in p.constexprs}
    options = {
        p.role.value: configuration.get(p.name, p.start)
        for p in parameters
        if p.role in LAUNCH_OPTIONS
    }
    given = call.args[0] if call.args else next(k.value for k in call.keywords if k.arg == "kwargs")
    entries = []
    if isinstance(given, ast.Dict):
        for key, value in zip(given.keys, given.values, strict=True):
            name = str(key.value) if isinstance(key, ast.Constant) else ""
            written = repr(values[name]) if name in values else text.written(value)
            entries.append(f'"{name}": {written}')
    plain = "".join(
        f", {name}={value}" for name, value in options.items() if name != "num_ctas" or value != 1
    )
    kept = "".join(
        f", {text.written(k.value) if k.arg is None else f'{k.arg}={text.written(k.value)}'}"
        for k in call.keywords
        if k.arg not in (*options, "kwargs")
    )
    return f"triton.Config({{{', '.join(entries)}}}{plain}{kept})"
