"""White list for the syntax of a kernel's text: forms, names and attributes of its syntax tree,
walked without recursion.

A form unknown to Triton's code generator is refused with Triton's own message. Ways out of
Triton's language (names with two underscores, attributes of internals, foreign modules behind
Triton's modules) are tampering.
"""

from __future__ import annotations

import ast
import re
import types
import warnings
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kernelwright.tools.compiling.text import vocabulary
from kernelwright.tools.parsing import parse_module
from kernelwright.tools.report import Cheat, Fault, clean_text
from kernelwright.tools.trace.trace import Function, Json

MAX_KERNEL_NODES = 30_000
"""Maximum number of nodes in the syntax tree of a text."""
MAX_SYNTAX_DEPTH = 300
"""Nesting of a syntax tree: Triton's code generator takes three frames of Python for each level,
and Python stops at a thousand.
"""
MAX_IDENTIFIER_CHARACTERS = 200
"""Maximum length of an identifier."""
MAX_CONSTANT_BITS = 128
"""Bits of a constant in the text."""

_FORMS: tuple[type[ast.AST], ...] = (
    ast.FunctionDef, ast.arguments, ast.arg, ast.Return, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For, ast.While,
    ast.If, ast.Assert, ast.Expr, ast.Pass, ast.Raise,
    ast.BoolOp, ast.NamedExpr, ast.BinOp, ast.UnaryOp, ast.IfExp, ast.ListComp, ast.comprehension, ast.Compare,
    ast.Call, ast.keyword, ast.FormattedValue,
    ast.JoinedStr, ast.Constant, ast.Attribute, ast.Subscript, ast.Starred, ast.Name, ast.List, ast.Tuple, ast.Slice,
    ast.expr_context, ast.boolop, ast.operator, ast.unaryop, ast.cmpop,
)  # fmt: skip
_NESTED = (
    "nested function definitions are not allowed inside a @triton.jit kernel. Move the helper function to "
    "module level and decorate it with "
    "@triton.jit."
)
_ATTRIBUTE_FUNCTIONS = ("getattr", "hasattr")


@dataclass(frozen=True)
class Refusal:
    """Reason and position of a refused text."""

    message: str
    line: int = 1
    """From 1, in the text."""
    column: int = 0
    """From 0, in bytes of UTF-8 as Python's syntax trees count."""
    fault: Fault = Fault.COMPILE
    cheat: Cheat | None = None


class TextRefused(Exception):
    """Carries a Refusal to the edge of this module."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


def examine(function: Function, fields: Collection[str] = ()) -> ast.FunctionDef:
    """Returns the syntax tree of a text with allowed forms, names and attributes only. Raises
    TextRefused only.

    fields: allowed attributes beside those of Triton's values: fields of named tuples among the
    constants.
    """
    definition = _parse(function)
    _check_names(function.names)
    attributes = vocabulary.value_attributes() | (
        frozenset(fields) - vocabulary.internal_attributes()
    )
    _Walk(definition, function.names, attributes).check()
    return definition


def _parse(function: Function) -> ast.FunctionDef:
    if not re.match(r"def\s+\w+\s*\(", function.text[: MAX_IDENTIFIER_CHARACTERS + 50]):
        raise TextRefused(_forged("the text of a kernel does not begin with its definition"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = parse_module(function.text)
    except SyntaxError as error:
        raise TextRefused(
            Refusal(f"SyntaxError: {error.msg}", error.lineno or 1, max((error.offset or 1) - 1, 0))
        ) from None
    except (RecursionError, MemoryError, ValueError, OverflowError) as error:
        raise TextRefused(
            Refusal(f"the text is nested too deeply or cannot be read: {type(error).__name__}")
        ) from None
    if (
        len(tree.body) != 1
        or not isinstance(tree.body[0], ast.FunctionDef)
        or tree.body[0].name != function.name
    ):
        raise TextRefused(_forged("the text of a kernel is not one function of its name"))
    return tree.body[0]


def _forged(message: str) -> Refusal:
    return Refusal(message, fault=Fault.CHEAT, cheat=Cheat.FORGERY)


def _tampering(message: str, node: Any) -> TextRefused:
    return TextRefused(Refusal(message, node.lineno, node.col_offset, Fault.CHEAT, Cheat.TAMPER))


def _unsupported(message: str, node: ast.AST) -> TextRefused:
    return TextRefused(Refusal(message, getattr(node, "lineno", 1), getattr(node, "col_offset", 0)))


class _Walk:
    """Check of a syntax tree."""

    def __init__(
        self, definition: ast.FunctionDef, names: Mapping[str, Json], attributes: frozenset[str]
    ) -> None:
        self._definition = definition
        self._names = names
        self._attributes = attributes
        self._bound: set[str] = set()
        self._done: set[int] = set()
        """Ids of nodes which were checked together with their parent."""

    def check(self) -> None:
        """Raises TextRefused for the first forbidden node."""
        nodes = list(self._nodes())
        self._bound = {n.arg for n in nodes if isinstance(n, ast.arg)}
        self._bound |= {
            n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        for node in nodes:
            if id(node) not in self._done:
                getattr(self, f"_check_{type(node).__name__}", _accept)(node)

    def _nodes(self) -> Iterator[ast.AST]:
        """Parents before children, bounded in number and depth, every form on the list."""
        waiting: list[tuple[ast.AST, int, ast.AST]] = [(self._definition, 0, self._definition)]
        count = 0
        while waiting:
            node, depth, position = waiting.pop()
            position = node if hasattr(node, "lineno") else position
            count += 1
            if count > MAX_KERNEL_NODES:
                raise _unsupported(
                    f"the text of a kernel has more than {MAX_KERNEL_NODES} parts", position
                )
            if depth > MAX_SYNTAX_DEPTH:
                raise _unsupported(
                    f"an expression is nested more than {MAX_SYNTAX_DEPTH} levels deep", position
                )
            if not isinstance(node, _FORMS):
                raise _unsupported(f"unsupported AST node type: {type(node).__name__}", position)
            yield node
            waiting += [
                (child, depth + 1, position) for child in [*ast.iter_child_nodes(node)][::-1]
            ]

    # ---------------------------------------------------------------- statements
    def _check_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node is not self._definition:
            raise _unsupported(_NESTED, node)
        if node.decorator_list:
            raise TextRefused(_forged("the text of a kernel has decorators"))
        self._check_word(node.name, node)

    def _check_arguments(self, node: ast.arguments) -> None:
        if node.posonlyargs or node.kwarg:
            raise _unsupported(
                "a kernel takes no positional-only parameters and no **parameters", self._definition
            )

    def _check_arg(self, node: ast.arg) -> None:
        self._check_word(node.arg, node)
        for inner in ast.walk(node.annotation) if node.annotation else ():
            self._done.add(id(inner))  # reduced to a word: see `annotation`

    def _check_AnnAssign(self, node: ast.AnnAssign) -> None:
        for inner in ast.walk(node.annotation):
            self._done.add(id(inner))
        self._check_target(node.target)

    def _check_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._check_target(target)

    def _check_AugAssign(self, node: ast.AugAssign) -> None:
        self._check_target(node.target)

    def _check_For(self, node: ast.For) -> None:
        self._check_target(node.target)

    def _check_comprehension(self, node: ast.comprehension) -> None:
        self._check_target(node.target)
        if node.is_async:
            raise _unsupported("unsupported AST node type: comprehension", node.target)

    def _check_target(self, target: ast.expr) -> None:
        waiting = [target]
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.Subscript):
                raise _unsupported(
                    "NotImplementedError('__setitem__ is not supported in triton')", node
                )
            if isinstance(node, ast.Attribute):
                raise _unsupported(
                    "NotImplementedError('Attribute assignment is not supported in triton')", node
                )
            waiting += getattr(node, "elts", ())

    # ---------------------------------------------------------------- expressions
    def _check_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bytes | complex):
            raise _unsupported(
                f"a kernel knows no constants of type {type(node.value).__name__}", node
            )
        if isinstance(node.value, int) and node.value.bit_length() > MAX_CONSTANT_BITS:
            raise _unsupported(f"an integer of more than {MAX_CONSTANT_BITS} bits", node)

    def _check_Name(self, node: ast.Name) -> None:
        self._check_word(node.id, node)
        if node.id in _ATTRIBUTE_FUNCTIONS and node.id not in self._bound:
            raise _unsupported(
                f"{node.id} is only called, with the attribute's name written out", node
            )

    def _check_keyword(self, node: ast.keyword) -> None:
        if node.arg is None:
            raise _unsupported("a call in a kernel takes no **arguments", node.value)
        if node.arg.startswith("_"):
            raise _tampering(f"the argument {node.arg[:60]} is private to Triton", node.value)

    def _check_Call(self, node: ast.Call) -> None:
        if (
            not isinstance(node.func, ast.Name)
            or node.func.id not in _ATTRIBUTE_FUNCTIONS
            or node.func.id in self._bound
        ):
            return
        name = node.args[1] if len(node.args) in (2, 3) and not node.keywords else None
        if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
            raise _unsupported(
                f"{node.func.id} is only called with the attribute's name written out", node
            )
        self._done.add(id(node.func))
        self._check_chain(node.args[0], [(name.value, name)])

    def _check_Attribute(self, node: ast.Attribute) -> None:
        self._check_chain(node.value, [(node.attr, node)])

    def _check_chain(self, owner: ast.expr, chain: list[tuple[str, ast.expr]]) -> None:
        """Checks an attribute chain `a.b.c`: existing parts behind a leading module must be
        allowed, all further parts must be attributes of values.
        """
        while isinstance(owner, ast.Attribute):
            self._done.add(id(owner))
            chain.append((owner.attr, owner))
            owner = owner.value
        chain.reverse()
        for name, node in chain:
            self._check_word(name, node)
        if isinstance(owner, ast.Name) and owner.id not in self._bound and owner.id in self._names:
            chain = _walked(self._names[owner.id], chain)
        for name, node in chain:
            self._check_word(name, node, tamper=True)
            if name not in self._attributes:
                raise _unknown_attribute(name, node)

    def _check_word(self, word: str, node: ast.AST, *, tamper: bool = False) -> None:
        if len(word) > MAX_IDENTIFIER_CHARACTERS:
            raise _unsupported(f"an identifier of {len(word)} characters", node)
        if (
            word.startswith("__")
            or word in vocabulary.RESERVED
            or (tamper and word.startswith("_"))
        ):
            raise _tampering(f"a kernel names {clean_text(word, 60)}", node)


def _accept(node: ast.AST) -> None:
    """Nothing but its form matters."""


_INTERNAL_ATTRIBUTES = frozenset(
    {
        "builder",
        "data",
        "fn",
        "handle",
        "parse",
        "raw_src",
        "rewrite",
        "rewriter",
        "run",
        "semantic",
        "src",
        "to_ir",
        "warmup",
    }
)


def _unknown_attribute(name: str, node: ast.expr) -> TextRefused:
    if name in _INTERNAL_ATTRIBUTES:
        return _tampering(f"a kernel asks a value of Triton for its {name}", node)
    return _unsupported(
        repr(AttributeError(f"a value in a kernel has no attribute {clean_text(name, 80)!r}")), node
    )


def _walked(form: Json, chain: list[tuple[str, ast.expr]]) -> list[tuple[str, ast.expr]]:
    """Removes leading modules and name spaces from an attribute chain; returns the attributes of
    values. Empty if the chain ends in a missing name.
    """
    at = 0
    while at < len(chain) and isinstance(form, dict) and "members" in form:
        name, node = chain[at]
        if name not in form["members"]:
            return []
        form = form["members"][name]
        at = at + 1
    if not isinstance(form, dict) or "triton" not in form:
        return chain[at:]
    value = vocabulary.find(form["triton"])  # `_check_names` has found it before
    while at < len(chain) and isinstance(value, types.ModuleType):
        name, node = chain[at]
        try:
            value = vocabulary.member(value, name)
            at = at + 1
        except vocabulary.NotThere:
            return []  # Triton says so, or it stands where a constexpr condition is false
        except vocabulary.NotNameable as error:
            raise _tampering(str(error), node) from None
    return chain[at:]


_FUNCTIONS = ("function", "constexpr_function")
_KINDS = (*_FUNCTIONS, "value", "constexpr", "unknown")


def _check_names(names: Mapping[str, Json]) -> None:
    """Checks that every name is an identifier with a form defined in trace.py. Raises
    TextRefused.
    """
    waiting: list[tuple[str, Json]] = list(names.items())
    while waiting:
        name, form = waiting.pop()
        if (
            not name.isidentifier()
            or name.startswith("__")
            or name in vocabulary.RESERVED
            or len(name) > MAX_IDENTIFIER_CHARACTERS
        ):
            raise TextRefused(_tampers(f"a kernel names {clean_text(name, 60)}"))
        if not isinstance(form, dict) or len(form) != 1:
            raise TextRefused(_forged(f"what {name} stands for has no known form"))
        [(kind, value)] = form.items()
        if kind == "members" and isinstance(value, dict):
            waiting += value.items()
        elif kind == "triton" and isinstance(value, str):
            _check_qualified_name(value)
        elif (kind in _FUNCTIONS and not isinstance(value, str)) or kind not in _KINDS:
            raise TextRefused(_forged(f"what {name} stands for has no known form"))


def _check_qualified_name(qualified_name: str) -> None:
    try:
        vocabulary.find(qualified_name)
    except vocabulary.NotThere as error:
        raise TextRefused(Refusal(str(error))) from None
    except vocabulary.NotNameable as error:
        raise TextRefused(_tampers(str(error))) from None


def _tampers(message: str) -> Refusal:
    return Refusal(clean_text(message, 200), fault=Fault.CHEAT, cheat=Cheat.TAMPER)
