"""Signatures of methods as shown in a file's text, and arguments of calls in parameter order.

def forward(self, x, scale=1.0, *, mask=None)

signature.in_order([x], {"mask": m})  ->  [x, 1.0, m]
"""

from __future__ import annotations

import ast
import io
import itertools
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kernelwright.agent.problems.syntax_search import definitions, first_definition

BASES_WITHOUT_SIGNATURE = frozenset({"nn.Module", "torch.nn.Module", "Module"})
"""Base classes whose constructor takes no arguments; a subclass without a constructor takes none
either.
"""


@dataclass(frozen=True)
class Signature:
    """Parameters of a method after `self`, or of a function."""

    positional: tuple[str, ...] = ()
    keyword_only: tuple[str, ...] = ()
    defaults: Mapping[str, ast.expr] = field(default_factory=dict)
    vararg: str = ""
    """Name of `*args`; empty if absent."""
    kwarg: str = ""
    """Name of `**kwargs`; empty if absent."""

    def accepts(self, count: int, names: Sequence[str]) -> bool:
        """Returns whether a call with `count` positional arguments and these names binds to the
        parameters.
        """
        filled = self.positional[:count]
        if count > len(self.positional) and not self.vararg:
            return False
        unfilled = {*self.positional[count:], *self.keyword_only}
        if not self.kwarg and set(names) - unfilled:
            return False
        missing = unfilled - set(names) - set(self.defaults)
        return not missing and not set(filled) & set(names)

    def in_order(
        self, args: Sequence[ast.expr], named: Mapping[str, ast.expr]
    ) -> list[ast.expr] | None:
        """Returns the arguments as a list, with defaults for skipped parameters.

        None if `*args` or `**kwargs` leave no position for an argument.
        """
        if not named:
            return list(args)
        order = [*self.positional, *self.keyword_only]
        if self.vararg or set(named) - set(order[len(args) :]):
            return None
        # Parameters between the positional arguments and the last named one need a value, too.
        last = max(order.index(name) for name in named) + 1
        ordered = list(args)
        for name in order[len(args) : last]:
            value = named.get(name, self.defaults.get(name))
            if value is None:
                return None
            ordered.append(value)
        return ordered


def signature_of(function: ast.FunctionDef, *, bound: bool = True) -> Signature:
    """Returns the signature of a function; without the first parameter for a method (`bound`)."""
    arguments = function.args
    positional = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
    defaults = dict(zip(reversed(positional), reversed(arguments.defaults), strict=False))
    for parameter, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if default is not None:
            defaults[parameter.arg] = default
    return Signature(
        positional=tuple(positional[1:] if bound else positional),
        keyword_only=tuple(a.arg for a in arguments.kwonlyargs),
        defaults=defaults,
        vararg=arguments.vararg.arg if arguments.vararg else "",
        kwarg=arguments.kwarg.arg if arguments.kwarg else "",
    )


def method_of(cls: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    """Returns a method defined in the class body."""
    return first_definition(cls.body, ast.FunctionDef, name)


def inherited_method(tree: ast.Module, cls: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    """Returns a method of the class or of the nearest base class in the file."""
    for ancestor in _lineage(tree, cls):
        method = method_of(ancestor, name)
        if method is not None:
            return method
    return None


def signature_of_method(tree: ast.Module, cls: ast.ClassDef, name: str) -> Signature | None:
    """Returns the signature of a method; None if a base class outside of the file defines the
    method.
    """
    function = inherited_method(tree, cls, name)
    if function is not None:
        return signature_of(function)
    bases: set[str] = set()
    for ancestor in _lineage(tree, cls):
        bases.update(map(ast.unparse, ancestor.bases))
    outside = bases - set(definitions(tree.body, ast.ClassDef))
    return Signature() if name == "__init__" and outside <= BASES_WITHOUT_SIGNATURE else None


def _lineage(tree: ast.Module, cls: ast.ClassDef) -> Iterator[ast.ClassDef]:
    yield cls
    bases = {ast.unparse(base) for base in cls.bases}
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name in bases and node is not cls:
            yield from _lineage(tree, node)


def without_keyword_only(source: str, function: ast.FunctionDef | None) -> str:
    """Removes the bare `*` from a signature, so that every parameter is positional.

    Line numbers are preserved.
    """
    if function is None or not function.args.kwonlyargs or function.args.vararg is not None:
        return source
    lines = source.splitlines(keepends=True)
    depth = 0
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    for token, after in itertools.pairwise(tokens):
        if token.start < (function.lineno, function.col_offset) or token.type != tokenize.OP:
            continue
        depth += (token.string in "([{") - (token.string in ")]}")
        if depth == 1 and token.string == "*" and after.string == ",":
            row, first, last = token.start[0] - 1, token.start[1], after.end[1]
            lines[row] = lines[row][:first] + lines[row][last:].lstrip(" ")
            break
    return "".join(lines)
