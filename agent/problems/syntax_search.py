"""Searches syntax trees: definitions by name, calls, and the names that expressions read."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import TypeVar

from kernelwright.agent.problems.tritonbench_cases import names_loaded_by

Definition = TypeVar("Definition", ast.ClassDef, ast.FunctionDef)


def definitions(body: Iterable[ast.stmt], kind: type[Definition]) -> dict[str, Definition]:
    """Returns the classes or functions in a body by name; a later definition replaces an earlier.

    Example: `definitions(tree.body, ast.ClassDef)["Model"]`.
    """
    by_name: dict[str, Definition] = {}
    for statement in body:
        if isinstance(statement, kind):
            by_name[statement.name] = statement
    return by_name


def first_definition(
    body: Iterable[ast.stmt], kind: type[Definition], name: str
) -> Definition | None:
    """Returns the first class or function with this name in a body; None if there is none."""
    for statement in body:
        if isinstance(statement, kind) and statement.name == name:
            return statement
    return None


def names_loaded_by_all(nodes: Iterable[ast.AST]) -> set[str]:
    """Returns the names that any of several syntax trees reads."""
    names: set[str] = set()
    for node in nodes:
        names |= names_loaded_by(node)
    return names


def argument_values(call: ast.Call) -> list[ast.expr]:
    """Returns positional and keyword values of a call, in order."""
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def calls_inside(node: ast.AST) -> list[ast.Call]:
    """Returns all calls in a syntax tree, in the order of `ast.walk`."""
    return [part for part in ast.walk(node) if isinstance(part, ast.Call)]
