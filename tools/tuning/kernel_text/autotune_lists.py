"""Reads the `@triton.autotune` lists of a file, and reduces each to its first configuration."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from kernelwright.tools.parsing import parse_module
from kernelwright.tools.tuning.kernel_text.kernel_syntax import called_name, kernels_of
from kernelwright.tools.tuning.kernel_text.parameters import Setting
from kernelwright.tools.tuning.kernel_text.places import Text
from kernelwright.tools.tuning.kernel_text.resolving import Scopes, entries
from kernelwright.tools.tuning.kernel_text.rewriting import apply_edits

CONFIG_OPTIONS = ("num_warps", "num_stages", "num_ctas")


@dataclass(frozen=True)
class ListedConfig:
    """One `triton.Config` of an autotune list."""

    call: ast.Call
    nodes: dict[str, ast.expr]
    """Expression of each constexpr."""
    values: dict[str, Setting]
    """Constexprs and options written as plain numbers or texts."""


@dataclass(frozen=True)
class AutotuneList:
    """Autotune list of a kernel."""

    kernel: str
    node: ast.expr
    """Syntax node of the list."""
    configs: list[ListedConfig] = field(default_factory=list)


def lists_of(tree: ast.Module, scopes: Scopes) -> list[AutotuneList]:
    """Returns the literal lists of configurations; a list made by a function or a comprehension
    cannot be read.
    """
    lists = []
    for kernel in kernels_of(tree).values():
        call = kernel.autotune
        config_list = _configs(call) if call is not None else None
        node = (
            scopes.value_of(config_list)
            if isinstance(config_list, ast.Name | ast.Attribute)
            else config_list
        )
        if isinstance(node, ast.List | ast.Tuple) and node.elts:
            configs = [_config(e, scopes) for e in node.elts if isinstance(e, ast.Call)]
            if len(configs) == len(node.elts) and all(
                called_name(c.call) == "Config" for c in configs
            ):
                lists.append(AutotuneList(kernel.name, node, configs))
    return lists


def without_all_but_first(source: str) -> str:
    """The file in which every autotune list has its first configuration alone: nothing is chosen at run time."""
    tree = parse_module(source)
    text = Text(source)
    edits = {}
    for autotune_list in lists_of(tree, Scopes(tree)):
        if len(autotune_list.configs) > 1:
            start, end = text.span(autotune_list.node)
            edits[start] = (start, end, f"[{text.written(autotune_list.configs[0].call)}]")
    return apply_edits(source, edits.values())


def _configs(call: ast.Call) -> ast.expr | None:
    named = next((k.value for k in call.keywords if k.arg == "configs"), None)
    return named if named is not None else next(iter(call.args), None)


def _config(call: ast.Call, scopes: Scopes) -> ListedConfig:
    keyword_values = next((k.value for k in call.keywords if k.arg == "kwargs"), None) or next(
        iter(call.args), None
    )
    nodes = entries(scopes, keyword_values) if keyword_values is not None else {}
    options = {k.arg: k.value for k in call.keywords if k.arg in CONFIG_OPTIONS}
    values: dict[str, Setting] = {}
    for name, node in (*nodes.items(), *((str(n), v) for n, v in options.items())):
        value = node.value if isinstance(node, ast.Constant) else None
        if isinstance(value, int | str) and not isinstance(value, bool):
            values[name] = value
    return ListedConfig(call, nodes, values)
