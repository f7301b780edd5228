"""The `@triton.autotune` lists of a file: their configurations, and the file with one of them alone."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from kernelwright.tools.parsing import parse_module
from kernelwright.tools.tuning.kernel_text.kernel_syntax import called_name, kernels_of
from kernelwright.tools.tuning.kernel_text.parameters import Setting
from kernelwright.tools.tuning.kernel_text.places import Text
from kernelwright.tools.tuning.kernel_text.resolving import Scopes, entries
from kernelwright.tools.tuning.kernel_text.rewriting import apply_edits

OPTIONS = ("num_warps", "num_stages", "num_ctas")


@dataclass(frozen=True)
class ListedConfig:
    """One `triton.Config` of a list."""

    call: ast.Call
    nodes: dict[str, ast.expr]
    """Constexpr -> its expression."""
    values: dict[str, Setting]
    """Constexprs and options that are written as plain numbers or texts."""


@dataclass(frozen=True)
class AutotuneList:
    """The list of one kernel."""

    kernel: str
    node: ast.expr
    """The list itself."""
    configs: list[ListedConfig] = field(default_factory=list)


def lists_of(tree: ast.Module, scopes: Scopes) -> list[AutotuneList]:
    """Returns the lists of configurations that are written out; a list that a function or a comprehension makes cannot
    be read.
    """
    found = []
    for kernel in kernels_of(tree).values():
        call = kernel.autotune
        given = _configs(call) if call is not None else None
        node = scopes.value_of(given) if isinstance(given, ast.Name | ast.Attribute) else given
        if isinstance(node, ast.List | ast.Tuple) and node.elts:
            configs = [_config(e, scopes) for e in node.elts if isinstance(e, ast.Call)]
            if len(configs) == len(node.elts) and all(
                called_name(c.call) == "Config" for c in configs
            ):
                found.append(AutotuneList(kernel.name, node, configs))
    return found


def without_all_but_first(source: str) -> str:
    """The file in which every autotune list has its first configuration alone: nothing is chosen at run time."""
    tree = parse_module(source)
    text = Text(source)
    edits = {}
    for one in lists_of(tree, Scopes(tree)):
        if len(one.configs) > 1:
            start, end = text.span(one.node)
            edits[start] = (start, end, f"[{text.written(one.configs[0].call)}]")
    return apply_edits(source, edits.values())


def _configs(call: ast.Call) -> ast.expr | None:
    named = next((k.value for k in call.keywords if k.arg == "configs"), None)
    return named if named is not None else next(iter(call.args), None)


def _config(call: ast.Call, scopes: Scopes) -> ListedConfig:
    given = next((k.value for k in call.keywords if k.arg == "kwargs"), None) or next(
        iter(call.args), None
    )
    nodes = entries(scopes, given) if given is not None else {}
    options = {k.arg: k.value for k in call.keywords if k.arg in OPTIONS}
    values: dict[str, Setting] = {}
    for name, node in (*nodes.items(), *((str(n), v) for n, v in options.items())):
        value = node.value if isinstance(node, ast.Constant) else None
        if isinstance(value, int | str) and not isinstance(value, bool):
            values[name] = value
    return ListedConfig(call, nodes, values)
