"""Writes references with few tokens, the form in which small policies are trained and prompted.

import torch.nn as neural                      class Model(nn.Module):
class Model(neural.Module):                        def forward(self, x):
    def forward(self, x: torch.Tensor):                return F.gelu(x)
        return torch.nn.functional.gelu(x)
"""

from __future__ import annotations

import ast
from functools import lru_cache

from kernelwright.tools.problem import parse
from kernelwright.tools.reference_integers import CPU_SIZES

_LEFT_OUT = {"FAMILY", "TAGS", "ALIASES", CPU_SIZES}


FORM_VERSION = 2
"""Version of the compact form, part of the prompt version; incremented when references are
written differently.
"""
_MODULES = {"torch.nn.functional": "F", "torch.nn": "nn"}
_OWNERS = {"nn": "torch.nn"}


@lru_cache(maxsize=512)
def compact_reference(source: str) -> str:
    """Returns the reference as `ast.unparse` writes it, without imports, comments, docstrings,
    annotations and metadata.

    Torch modules have their usual names.
    """
    tree = parse(source)
    tree = _Usual(_torch_aliases(tree)).visit(tree)
    tree.body = [node for node in tree.body if not _is_left_out(node)]
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.Module) and _has_docstring(node):
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def _torch_aliases(tree: ast.Module) -> dict[str, str]:
    """Returns the usual name for each alias of a torch module in this file."""
    aliases: dict[str, str] = {}
    for node in tree.body:
        for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
            if isinstance(node, ast.ImportFrom):
                name, module = alias.asname or alias.name, f"{node.module}.{alias.name}"
            else:
                # `import torch.nn` binds only `torch`, which needs no alias.
                name, module = alias.asname or "", alias.name
            if name and module in _MODULES:
                aliases[name] = _MODULES[module]
    return aliases


class _Usual(ast.NodeTransformer):
    """Rewrites `functional.gelu`, `nn.functional.gelu` and `torch.nn.functional.gelu` to
    `F.gelu`, and removes annotations.
    """

    def __init__(self, imported: dict[str, str]) -> None:
        self._imported = {name: usual for name, usual in imported.items() if name != usual}

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.copy_location(ast.Name(self._imported.get(node.id, node.id), node.ctx), node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        owner = node.value.id if isinstance(node.value, ast.Name) else ""
        usual = _MODULES.get(f"{_OWNERS.get(owner, owner)}.{node.attr}")
        return node if usual is None else ast.copy_location(ast.Name(usual, node.ctx), node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.returns = None
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node


def _is_left_out(node: ast.stmt) -> bool:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return True
    targets = node.targets if isinstance(node, ast.Assign) else []
    return any(isinstance(target, ast.Name) and target.id in _LEFT_OUT for target in targets)


def _has_docstring(node: ast.ClassDef | ast.FunctionDef | ast.Module) -> bool:
    first = node.body[0] if node.body else None
    return (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    )
