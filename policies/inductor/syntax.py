"""Questions about Python syntax trees several modules ask."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeVar

Node = TypeVar("Node", bound=ast.AST)


def nodes_in(tree: ast.AST, kind: type[Node]) -> list[Node]:
    """Returns the nodes of a kind in a tree, breadth first."""
    return [node for node in ast.walk(tree) if isinstance(node, kind)]


def _name_nodes(trees: tuple[ast.AST, ...]) -> Iterator[ast.Name]:
    for tree in trees:
        yield from nodes_in(tree, ast.Name)


def names_in(*trees: ast.AST) -> set[str]:
    """Returns the names in some trees, read or assigned; attributes are no names."""
    return {node.id for node in _name_nodes(trees)}


def names_assigned(*trees: ast.AST) -> set[str]:
    """Returns the names statements assign."""
    return {node.id for node in _name_nodes(trees) if isinstance(node.ctx, ast.Store)}


def argument_names(function: ast.FunctionDef) -> set[str]:
    """Returns the names of a function's positional arguments."""
    return {argument.arg for argument in function.args.args}


def unique_name(name: str, used_names: set[str]) -> str:
    """Returns `name`, or `name_2` and so on if the name is used, and adds the result to the used names."""
    unique, number = name, 2
    while unique in used_names:
        unique, number = f"{name}_{number}", number + 1
    used_names.add(unique)
    return unique
