"""Several configurations written into a file as an `@triton.autotune` list."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from kernelwright.tools.parsing import parse_module
from kernelwright.tools.tuning.kernel_text.autotune_lists import lists_of
from kernelwright.tools.tuning.kernel_text.parameters import (
    LAUNCH_OPTION_ROLES,
    Configuration,
    Parameter,
    ParameterSpace,
)
from kernelwright.tools.tuning.kernel_text.places import Text
from kernelwright.tools.tuning.kernel_text.reading import TunableFile
from kernelwright.tools.tuning.kernel_text.resolving import Scopes
from kernelwright.tools.tuning.kernel_text.rewriting import apply_edits, rewrite


def with_list(
    file: TunableFile, space: ParameterSpace, configurations: Sequence[Configuration]
) -> str:
    """Returns the file with these configurations in its autotune list; empty without such a list,
    or if the configurations differ in more than a list can hold.

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
    autotune_list = next(
        (
            candidate_list
            for candidate_list in lists_of(tree, Scopes(tree))
            if candidate_list.kernel in kernels
        ),
        None,
    )
    if autotune_list is None:
        return ""
    parameters = [p for p in listed if autotune_list.kernel in p.kernels]
    start, end = text.span(autotune_list.node)
    indent = " " * 8
    configs = [_written(text, autotune_list.configs[0].call, parameters, c) for c in configurations]
    lines = "".join(f"\n{indent}{config}," for config in dict.fromkeys(configs))
    return apply_edits(fixed, [(start, end, f"[{lines}\n    ]")])


def _written(
    text: Text, call: ast.Call, parameters: Sequence[Parameter], configuration: Configuration
) -> str:
    """Writes a `triton.Config` with its constexprs in the order of the file's first entry."""
    values = {n: configuration.get(p.name, p.start) for p in parameters for n in p.constexprs}
    options = {
        p.role.value: configuration.get(p.name, p.start)
        for p in parameters
        if p.role in LAUNCH_OPTION_ROLES
    }
    keyword_values = (
        call.args[0] if call.args else next(k.value for k in call.keywords if k.arg == "kwargs")
    )
    entries = []
    if isinstance(keyword_values, ast.Dict):
        for key, value in zip(keyword_values.keys, keyword_values.values, strict=True):
            name = str(key.value) if isinstance(key, ast.Constant) else ""
            written = repr(values[name]) if name in values else text.written(value)
            entries.append(f'"{name}": {written}')
    plain = "".join(
        f", {name}={value}" for name, value in options.items() if name != "num_ctas" or value != 1
    )
    arguments = "".join(
        f", {text.written(k.value) if k.arg is None else f'{k.arg}={text.written(k.value)}'}"
        for k in call.keywords
        if k.arg not in (*options, "kwargs")
    )
    return f"triton.Config({{{', '.join(entries)}}}{plain}{arguments})"
