"""Figures of how the five packages read, as upper bounds: each may fall, and none may rise."""

import ast
import functools
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("agent", "policies", "rl", "store", "tools")
LEFT_OUT = {"catalogue", "weights"}
"""Folders with a problem per file, and of data."""
MAX_SHARED_CLASS_NAMES = 3
"""`Value` forbids unknown fields in policies and drops them in tools; `Verdict` is a row, and an answer of the service.
"""
MAX_SHARED_CONSTANT_NAMES = 2
"""`INTERPRETED` stands in two texts that are copied; `INTERRUPTED` in two entry points that import nothing."""
MAX_ANY_PERCENT = 2.0
"""Parameters that are annotated with exactly `Any`, of all parameters."""
MAX_FUNCTIONS_OF_MANY_PARAMETERS = 77
MANY_PARAMETERS = 7
MAX_COMPREHENSIONS_PER_1000_LINES = 29.7
CONSTANT = re.compile("[A-Z][A-Z0-9_]{3,}")


@functools.cache
def trees() -> dict[str, tuple[ast.Module, int]]:
    """The syntax tree and the number of lines of each module."""
    files = [p for package in PACKAGES for p in sorted((ROOT / package).rglob("*.py"))]
    texts = {
        str(p.relative_to(ROOT)): p.read_text(encoding="utf-8")
        for p in files
        if not LEFT_OUT & set(p.parts)
    }
    return {name: (ast.parse(text), text.count("\n")) for name, text in texts.items()}


def nodes(*kinds: type) -> Iterator[tuple[str, ast.AST]]:
    """All nodes of some kinds, with the module of each."""
    for name, (tree, _) in trees().items():
        yield from ((name, node) for node in ast.walk(tree) if isinstance(node, kinds))


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    """The parameters of a function but the object that it is bound to."""
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [argument for argument in named if argument.arg not in ("self", "cls")]


def shared(names: Iterator[tuple[str, str]]) -> dict[str, set[str]]:
    """Names that several modules define, with those modules."""
    homes: dict[str, set[str]] = defaultdict(set)
    for module, name in names:
        homes[name].add(module)
    return {name: modules for name, modules in homes.items() if len(modules) > 1}


def test_one_class_name_stands_for_one_idea():
    names = ((module, node.name) for module, node in nodes(ast.ClassDef))
    doubles = shared((module, name) for module, name in names if not name.startswith("_"))
    assert len(doubles) <= MAX_SHARED_CLASS_NAMES, doubles


def constants() -> Iterator[tuple[str, str]]:
    """Module and name of each constant."""
    for module, (tree, _) in trees().items():
        for node in tree.body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
            for target in targets:
                if isinstance(target, ast.Name) and CONSTANT.fullmatch(target.id):
                    yield module, target.id


def test_one_constant_has_one_home():
    doubles = shared(constants())
    assert len(doubles) <= MAX_SHARED_CONSTANT_NAMES, doubles


def test_parameters_have_types():
    functions = nodes(ast.FunctionDef, ast.AsyncFunctionDef)
    annotations = [p.annotation for _, function in functions for p in parameters(function)]
    unnamed = sum(isinstance(a, ast.Name) and a.id == "Any" for a in annotations)
    assert 100 * unnamed / len(annotations) <= MAX_ANY_PERCENT


def test_parameters_that_travel_together_are_values():
    functions = nodes(ast.FunctionDef, ast.AsyncFunctionDef)
    long = [
        f"{module}: {function.name} ({len(parameters(function))})"
        for module, function in functions
        if len(parameters(function)) >= MANY_PARAMETERS and "command_line" not in module
    ]
    assert len(long) <= MAX_FUNCTIONS_OF_MANY_PARAMETERS, "\n".join(long)


def test_comprehensions_are_short_of_a_habit():
    kinds = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
    lines = sum(count for _, count in trees().values())
    count = sum(1 for _ in nodes(*kinds))
    assert 1000 * count / lines <= MAX_COMPREHENSIONS_PER_1000_LINES
