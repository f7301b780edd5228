"""Finds choices of a candidate's host code with a single outcome at every size and in all
surroundings, and unvaried reads.

Trusted: reads a source, and the tracer's report about it.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Sequence
from typing import Any

from kernelwright.tools.host_choices import HostChoice
from kernelwright.tools.parsing import parse_module
from kernelwright.tools.report import clean_text
from kernelwright.tools.tracing.host_code.choices import FALSE, STUCK, TRUE, ChoiceKind, choices_of
from kernelwright.tools.tracing.host_code.excuses import FixedByProblem
from kernelwright.tools.tracing.host_code.unvaried_reads import unvaried_reads

MAX_TOLD = 20
MAX_CONDITION_CHARACTERS = 120


def one_sided_choices(
    source: str, outcomes: Sequence[int], constructors: Sequence[Any]
) -> tuple[HostChoice, ...]:
    """Returns the choices of which an outcome stayed unseen, and the readings of surroundings that no verdict varies.

    outcomes: of each choice, as the tracer says. constructors: the arguments of ModelNew at each size, described.
    """
    tree = _tree(source)
    choices = choices_of(tree)
    if len(choices) != len(outcomes):
        return (HostChoice(line=0, text="", never="recorded"),)
    fixed = FixedByProblem(tree, varying_parameters(tree, constructors))
    unseen = []
    for choice, outcome in zip(choices, outcomes, strict=True):
        never = _never(choice.kind, outcome)
        if never and not fixed.excuses(choice):
            text = clean_text(ast.unparse(choice.node), MAX_CONDITION_CHARACTERS).splitlines()[0]
            unseen.append(
                HostChoice(line=getattr(choice.node, "lineno", 0), text=text, never=never)
            )
    for line, read in unvaried_reads(tree):
        text = clean_text(read, MAX_CONDITION_CHARACTERS).splitlines()[0]
        unseen.append(HostChoice(line=line, text=text, never="varied"))
    return tuple(unseen[:MAX_TOLD])


@functools.lru_cache(maxsize=4)
def _tree(source: str) -> ast.Module:
    return parse_module(source)


def _never(kind: ChoiceKind, outcome: int) -> str:
    """Returns the unseen outcome; empty if there is none, or if the choice was never reached."""
    if kind is ChoiceKind.FOLD:
        return "another value" if outcome & STUCK else ""
    outcomes = outcome & (TRUE | FALSE)
    if kind is ChoiceKind.CASE:
        return "" if outcomes else "taken"
    if kind is ChoiceKind.HANDLER:
        return {FALSE: "handled", TRUE: "without an exception"}.get(outcomes, "")
    return {TRUE: "false", FALSE: "true"}.get(outcomes, "")


def varying_parameters(tree: ast.Module, constructors: Sequence[Any]) -> set[str]:
    """Returns the names of ModelNew's parameters whose arguments differ between sizes."""
    names = next((_parameters_of(node) for node in tree.body if _is_entry(node)), [])
    arguments = [
        list(constructor) if isinstance(constructor, list | tuple) else []
        for constructor in constructors
    ]
    longest = max(map(len, arguments), default=0)
    varying = set()
    for index in range(longest):
        values = {
            repr(constructor[index]) if index < len(constructor) else ""
            for constructor in arguments
        }
        if len(values) > 1:
            varying |= {names[index]} if index < len(names) else set(names)
    return varying


def _is_entry(node: ast.stmt) -> bool:
    return isinstance(node, ast.ClassDef) and node.name == "ModelNew"


def _parameters_of(entry: ast.AST) -> list[str]:
    for node in getattr(entry, "body", ()):
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            return [argument.arg for argument in [*node.args.posonlyargs, *node.args.args][1:]]
    return []
