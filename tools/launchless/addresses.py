"""Infers the types of a kernel's parameters from its text: a pointer where addresses are built from it, an integer
where it counts elements.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cached_property

from kernelwright.tools.launchless.module_functions import Module, arguments

_ATOMIC = (
    "atomic_add",
    "atomic_max",
    "atomic_min",
    "atomic_xchg",
    "atomic_cas",
    "atomic_and",
    "atomic_or",
    "atomic_xor",
)
MEMORY_FUNCTIONS = frozenset({"load", "store", "make_block_ptr", "make_tensor_descriptor", *_ATOMIC})
INTEGER_ATOMICS = frozenset({"atomic_cas", "atomic_xchg", "atomic_and", "atomic_or", "atomic_xor"})
RANGE_FUNCTIONS = frozenset({"range", "static_range", "arange", "cdiv", "program_id"})
ADDRESS_PRESERVING_FUNCTIONS = frozenset(
    {"multiple_of", "max_contiguous", "max_constancy", "broadcast_to", "advance", "cast", "make_block_ptr"}
)
"""Functions whose first argument is an address where their result is one."""
MAX_STEPS = 100_000
_NUMBER = re.compile(r"stride|^n_|^num|numel|size|len|offset|idx|index|seed|eps|dim$|_n$|rows?$|cols?$", re.IGNORECASE)
_POINTER = re.compile(r"ptr|pointer", re.IGNORECASE)
_WHOLE = (ast.Mod, ast.FloorDiv, ast.BitAnd, ast.BitOr, ast.BitXor, ast.LShift, ast.RShift)
_COUNTED = (ast.Mult, ast.Mod, ast.FloorDiv, ast.Div)


class ModuleFunction:
    """One Triton function of a module.

    `seen` stops at functions that call each other; `known` holds those that were looked at.
    """

    def __init__(
        self,
        module: Module,
        name: str,
        seen: frozenset[str] = frozenset(),
        known: dict[str, ModuleFunction] | None = None,
    ) -> None:
        self._module, self._node, self._seen = module, module.functions[name], seen | {name}
        self._known = {} if known is None else known
        self._steps = 0
        self.parameters = {a.arg: a for a in arguments(self._node)}
        self._given: dict[str, list[ast.expr]] = {}
        self._added: dict[str, list[ast.expr]] = {}
        for node in ast.walk(self._node):
            self._note(node)

    def _note(self, node: ast.AST) -> None:
        """What names are given; what is added to them is kept apart, for an address stays one."""
        if isinstance(node, ast.Assign):
            for target in node.targets:
                for name, value in _pairs(target, node.value):
                    self._given.setdefault(name, []).append(value)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and isinstance(node.target, ast.Name) and node.value:
            self._given.setdefault(node.target.id, []).append(node.value)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            self._added.setdefault(node.target.id, []).append(node.value)
        elif isinstance(node, ast.For) and isinstance(node.target, ast.Name):
            self._added.setdefault(node.target.id, []).append(node.iter)

    # -------------------------------------------------------------- pointers
    @cached_property
    def pointers(self) -> set[str]:
        """Parameters that addresses begin with."""
        found = set().union(*(self.base(address) for address in self._addresses), self._typed())
        return found & set(self.parameters) - self.constants

    @cached_property
    def constants(self) -> set[str]:
        """Returns the parameters that are annotated as `constexpr`."""
        return {n for n, a in self.parameters.items() if a.annotation and "constexpr" in ast.unparse(a.annotation)}

    @cached_property
    def described(self) -> set[str]:
        """Parameters with methods of a tensor descriptor: nothing is known of their blocks."""
        calls = [n.func for n in ast.walk(self._node) if isinstance(n, ast.Call)]
        methods = [
            f for f in calls if isinstance(f, ast.Attribute) and f.attr in ("load", "store", "gather", "scatter")
        ]
        return {f.value.id for f in methods if isinstance(f.value, ast.Name) and f.value.id in self.parameters}

    @cached_property
    def _addresses(self) -> list[ast.expr]:
        """Returns the addresses of its own loads and stores, and what functions get that take a pointer there."""
        found = [address for _, address in self._accesses]
        for name, given in self._calls:
            found += [given[p] for p in self._callee(name).pointers if p in given]
        return found

    @cached_property
    def _calls(self) -> list[tuple[str, dict[str, ast.expr]]]:
        return [(name, given) for name, given in self._module.calls(self._node) if name not in self._seen]

    def _callee(self, name: str) -> ModuleFunction:
        if name not in self._known:
            self._known[name] = ModuleFunction(self._module, name, self._seen, self._known)
        return self._known[name]

    @cached_property
    def _accesses(self) -> list[tuple[ast.Call, ast.expr]]:
        found = []
        for node in ast.walk(self._node):
            if isinstance(node, ast.Call) and (address := self._address(node)) is not None:
                found.append((node, address))
        return found

    def _address(self, call: ast.Call) -> ast.expr | None:
        function = call.func
        if not isinstance(function, ast.Attribute) or function.attr not in MEMORY_FUNCTIONS:
            return None
        if isinstance(function.value, ast.Name) and function.value.id in {*self.parameters, *self._given}:
            return None
        named = [k.value for k in call.keywords if k.arg in ("pointer", "base")]
        return next(iter(call.args or named), None)

    def _typed(self) -> set[str]:
        """Returns the parameters whose element type the text asks for."""
        asked = [n.value for n in ast.walk(self._node) if isinstance(n, ast.Attribute) and n.attr == "element_ty"]
        owners = [n.value if isinstance(n, ast.Attribute) else n for n in asked]
        return {n.id for n in owners if isinstance(n, ast.Name)}

    def base(self, address: ast.expr) -> set[str]:
        """Parameters that an address may begin with: the leftmost that does not look like a number, else the
        leftmost.
        """
        found = self._begins(address, frozenset(), True) - {""}
        return found or self._begins(address, frozenset(), False) - {""}

    def _begins(self, address: ast.expr, inside: frozenset[str], strict: bool) -> set[str]:
        """With "" where it is a name's own earlier value.

        Nothing once it has taken too long: a text may be made to be slow.
        """
        self._steps += 1
        if self._steps > MAX_STEPS:
            return set()
        if isinstance(address, ast.Name):
            return self._name_begins(address.id, inside, strict)
        if isinstance(address, ast.BinOp) and isinstance(address.op, ast.Add | ast.Sub):
            return self._begins(address.left, inside, strict) or self._begins(address.right, inside, strict)
        if isinstance(address, ast.IfExp):
            return self._begins(address.body, inside, strict) | self._begins(address.orelse, inside, strict)
        if isinstance(address, ast.Subscript):
            return self._begins(address.value, inside, strict)
        if isinstance(address, ast.Call):
            return self._call_begins(address, inside, strict)
        return set()

    def _name_begins(self, name: str, inside: frozenset[str], strict: bool) -> set[str]:
        if name in inside:
            return {""}
        own = {name} if name in self.parameters and self._may_point(name, strict) else set()
        return own.union(*(self._begins(value, inside | {name}, strict) for value in self._given.get(name, ())))

    def _call_begins(self, call: ast.Call, inside: frozenset[str], strict: bool) -> set[str]:
        if not isinstance(call.func, ast.Attribute):
            return set()
        if call.func.attr == "where":
            return set().union(*(self._begins(a, inside, strict) for a in call.args[1:]))
        if call.func.attr in ADDRESS_PRESERVING_FUNCTIONS:
            named = [k.value for k in call.keywords if k.arg == "base"]
            return set().union(*(self._begins(a, inside, strict) for a in (call.args or named)[:1]))
        return self._begins(call.func.value, inside, strict) if call.func.attr == "to" else set()

    def _may_point(self, name: str, strict: bool) -> bool:
        if name in self.constants:
            return False
        return not strict or bool(_POINTER.search(name)) or not (_NUMBER.search(name) or name in self._counted)

    @cached_property
    def _counted(self) -> set[str]:
        """Names that are multiplied, divided, compared or counted up to: no pointers."""
        found: set[str] = set()
        for node in ast.walk(self._node):
            if isinstance(node, ast.BinOp) and isinstance(node.op, _COUNTED):
                found |= _direct(node.left, node.right)
            elif isinstance(node, ast.Compare) and not isinstance(node.ops[0], ast.Is | ast.IsNot):
                found |= _direct(node.left, *node.comparators)
            elif isinstance(node, ast.Call) and _called(node) in RANGE_FUNCTIONS:
                found |= _direct(*node.args)
        return found

    # -------------------------------------------------------------- whole numbers
    @cached_property
    def integers(self) -> set[str]:
        """Names (parameters and its own) that count elements; "*" before a pointer whose elements do."""
        found = self._whole_at_once()
        while True:
            more = found.union(*(self._names_in(v) for n in found for v in self._changes(n)))
            for node in ast.walk(self._node):
                if isinstance(node, ast.Compare) and any(
                    self._names_in(s) & found for s in (node.left, *node.comparators)
                ):
                    more |= set().union(*(self._names_in(s) for s in (node.left, *node.comparators)))
            if more == found:
                return found
            found = more

    def _changes(self, name: str) -> list[ast.expr]:
        return [*self._given.get(name, ()), *self._added.get(name, ())]

    def _whole_at_once(self) -> set[str]:
        found: set[str] = set()
        for pointer in self.pointers:
            found = found.union(*(self._names_in(v) for v in self._changes(pointer)))
        found = found.union(*(self._names_in(address) for address in self._addresses))
        for call, address in self._accesses:
            if _called(call) in INTEGER_ATOMICS:
                found |= {f"*{p}" for p in self.base(address)}
        for node in ast.walk(self._node):
            if isinstance(node, ast.Call) and _called(node) in RANGE_FUNCTIONS:
                found = found.union(*(self._names_in(a) for a in node.args))
            elif isinstance(node, ast.BinOp) and isinstance(node.op, _WHOLE):
                found |= self._names_in(node.left) | self._names_in(node.right)
        for name, given in self._calls:
            inner = self._callee(name).integers
            found = found.union(*(self._names_in(v) for p, v in given.items() if p in inner))
            found = found.union(*({f"*{b}" for b in self.base(v)} for p, v in given.items() if f"*{p}" in inner))
        return found - self.pointers

    def _names_in(self, value: ast.expr) -> set[str]:
        """Names whose values flow into this one; a pointer that is loaded from stands there with its star."""
        return set(self._flowing(value)) - self.pointers

    def _flowing(self, value: ast.AST) -> Iterator[str]:
        if isinstance(value, ast.Name):
            yield value.id
        elif isinstance(value, ast.Compare):
            return
        elif isinstance(value, ast.Call) and (address := self._address(value)) is not None:
            yield from (f"*{p}" for p in self.base(address) if p)
        else:
            parts = _flowing_arguments(value) if isinstance(value, ast.Call) else ast.iter_child_nodes(value)
            for part in parts:
                yield from self._flowing(part)


def _flowing_arguments(call: ast.Call) -> list[ast.expr]:
    """Without conditions, and without what is only looked through for a place."""
    owner = [call.func.value] if isinstance(call.func, ast.Attribute) and call.func.attr in ("to", "reshape") else []
    if _called(call) in ("argmax", "argmin"):
        return []
    return [*owner, *(call.args[1:] if _called(call) == "where" else call.args)]


def _called(call: ast.Call) -> str:
    return (
        call.func.attr
        if isinstance(call.func, ast.Attribute)
        else call.func.id
        if isinstance(call.func, ast.Name)
        else ""
    )


def _direct(*values: ast.expr) -> set[str]:
    return {v.id for v in values if isinstance(v, ast.Name)}


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple):
        same = isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts)
        values = value.elts if same and isinstance(value, ast.Tuple) else [value] * len(target.elts)
        for one, part in zip(target.elts, values, strict=True):
            yield from _pairs(one, part)
