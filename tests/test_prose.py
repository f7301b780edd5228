"""How names and docstrings of each package read, as upper bounds: a figure may fall and must not rise.

The words were counted in code bases that good engineers name as models (httpx, helion, nanochat and others, 2026-11).
There, names that say nothing are at most 0.2 % of all, and docstrings hold per 1,000 words at most 0.5 times `what`,
1.1 `where`, 4.1 `one`, 7.9 `that` and 3.9 `it`. More of them make sentences that cannot be read alone.
"""

import ast
import functools
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LEFT_OUT = {"catalogue", "weights"}
"""Folders with a problem per file, and of data."""
EMPTY_NAMES_TEXT = """
found made one own given asked told kept left wanted place places known seen taken said meant way ways thing things
others another rest much many more such who whom whose what which where here there away apart anew
"""
"""Words that name nothing when they stand alone as a variable, a parameter, an attribute or a function."""
EMPTY_NAMES = frozenset(EMPTY_NAMES_TEXT.split())
MAX_EMPTY_NAMES_PERCENT = {"agent": 0.3, "rl": 0.2, "store": 0.2, "policies": 0.5, "tools": 0.5}
MAX_PER_1000_WORDS = {
    "agent": {"what": 0.3, "where": 0.5, "one": 3.8, "that": 8.0, "it": 3.5},
    "rl": {"what": 0.3, "where": 0.5, "one": 3.5, "that": 4.5, "it": 3.3},
    "store": {"what": 0.3, "where": 0.8, "one": 3.5, "that": 9.5, "it": 1.0},
    "policies": {"what": 0.4, "where": 0.8, "one": 4.1, "that": 10.9, "it": 5.6},
    "tools": {"what": 0.6, "where": 0.7, "one": 3.5, "that": 11.9, "it": 4.2},
}
PACKAGES = sorted(MAX_PER_1000_WORDS)


@functools.cache
def trees(package: str) -> tuple[ast.Module, ...]:
    """The syntax trees of a package."""
    files = [p for p in (ROOT / package).rglob("*.py") if not LEFT_OUT & set(p.parts)]
    return tuple(ast.parse(path.read_text(encoding="utf-8")) for path in files)


def bound_names(tree: ast.AST) -> list[str]:
    """Parameters, assigned variables and attributes, and functions."""
    names = []
    for node in ast.walk(tree):
        match node:
            case ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.append(name)
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                names.append(name)
    return [name for name in names if name not in ("self", "cls", "_")]


def docstrings(tree: ast.Module) -> list[str]:
    """The texts of modules, classes, functions and fields."""
    texts = []
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if not isinstance(node, kinds):
            continue
        for before, statement in zip([None, *node.body], node.body, strict=False):
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    if before is None or isinstance(before, ast.Assign | ast.AnnAssign):
                        texts.append(text)
    return texts


@pytest.mark.parametrize("package", PACKAGES)
def test_names_say_something(package):
    names = Counter(name for tree in trees(package) for name in bound_names(tree))
    empty = {name: count for name, count in names.items() if name.strip("_") in EMPTY_NAMES}
    share = 100 * sum(empty.values()) / names.total()
    assert share <= MAX_EMPTY_NAMES_PERCENT[package], empty


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_are_plain_sentences(package):
    texts = [text for tree in trees(package) for text in docstrings(tree)]
    words = Counter(word for text in texts for word in re.findall(r"[a-z']+", text.lower()))
    shares = {word: 1000 * words[word] / words.total() for word in MAX_PER_1000_WORDS[package]}
    bounds = MAX_PER_1000_WORDS[package]
    assert {word: share for word, share in shares.items() if share > bounds[word]} == {}
