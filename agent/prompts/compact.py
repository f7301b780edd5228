"""A reference in as few tokens as it takes: what small policies are trained on and asked in."""

from __future__ import annotations

import ast
from functools import lru_cache

from kernelwright.tools.problem import parse
from kernelwright.tools.reference_integers import CPU_SIZES

_LEFT_OUT = {"FAMILY", "TAGS", "ALIASES", CPU_SIZES}


FORM_VERSION = 2
"""Counts up when the same reference is written otherwise: part of the prompt's version."""
_MODULES = {"torch.nn.functional": "F", "torch.nn": "nn"}
_OWNERS = {"nn": "torch.nn"}


@lru_cache(maxsize=512)
def compact_reference(source: str) -> str:
    """The reference without imports, comments, docstrings, annotations and our own notes, torch's modules by their
    usual names, written as `ast.unparse` does.
    """
    tree = parse(source)
    tree = _Usual(_torch_aliases(tree)).visit(tree)
    tree.body = [node for node in tree.body if not _is_left_out(node)]
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.Module) and _has_docstring(node):
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def _torch_aliases(tree: ast.Module) -> dict[str, str]:
    """The names that torch's modules go by in this file -> their usual ones."""
    found: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.Import):
            found |= {
                a.asname: _MODULES[a.name] for a in node.names if a.asname and a.name in _MODULES
            }
        if isinstance(node, ast.ImportFrom):
            names = {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
            found |= {name: _MODULES[whole] for name, whole in names.items() if whole in _MODULES}
    return found


class _Usual(ast.NodeTransformer):
    """`functional.gelu`, `nn.functional.gelu` and `torch.nn.functional.gelu` are `F.gelu`; nothing is annotated."""

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
    return isinstance(node, ast.Assign) and any(
        isinstance(t, ast.Name) and t.id in _LEFT_OUT for t in node.targets
    )


def _has_docstring(node: ast.ClassDef | ast.FunctionDef | ast.Module) -> bool:
    first = node.body[0] if node.body else None
    return (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    )
