"""Finds choices of host code that a problem determines, so that a verdict can see only one outcome.

Determined are dtypes, devices, numbers of dimensions, presence of arguments, and constructor
arguments that are equal at every size. Derived from the source alone; anything not known to be
determined counts as variable.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection

from kernelwright.tools.tracing.host_code.bindings import (
    attributes_of_instances,
    bindings,
    changed_names,
    is_container,
    is_of_self,
    name_called,
    parameters_of,
)
from kernelwright.tools.tracing.host_code.choices import ChoicePoint, Function, Scope
from kernelwright.tools.tracing.host_code.unvaried_reads import PURE_MODULES

FIXED_ATTRIBUTES = frozenset(
    {
        "dtype",
        "device",
        "is_cuda",
        "ndim",
        "layout",
        "is_sparse",
        "itemsize",
        "is_quantized",
        "is_meta",
    }
)
"""Of a tensor: a problem has one of each for all of its inputs."""
FIXED_CALLS = frozenset({
    "dim", "ndimension", "is_floating_point", "is_complex", "element_size", "is_tensor", "finfo", "iinfo",
    "is_available", "get_device_capability", "get_device_properties", "get_device_name",
    "is_bf16_supported", "current_target", "get_current_target", "get_active_torch_device",
    "supports_host_descriptor", "constexpr", "dtype", "device",
})  # fmt: skip
"""Methods and functions whose result is determined by the problem and the GPU."""
EXCUSED_BUILTINS = frozenset(
    {
        "bool",
        "int",
        "float",
        "str",
        "tuple",
        "list",
        "len",
        "min",
        "max",
        "abs",
        "all",
        "any",
        "set",
        "sorted",
        "sum",
    }
)
MAX_DEPTH = 40


class FixedByProblem:
    """Tells which expressions of a text have one value for a problem."""

    def __init__(self, tree: ast.Module, varying: Collection[str]) -> None:
        """varying: parameters of ModelNew's constructor that differ between the sizes of a problem."""
        self._tree = tree
        self._varying = varying
        self._module = bindings(tree)
        self._attributes = attributes_of_instances(tree)
        self._calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        self._defined = {
            n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)
        }
        self._changed = changed_names(tree)
        self._busy: set[int] = set()

    def excuses(self, choice: ChoicePoint) -> bool:
        """Returns True if a verdict on this problem can see only a single outcome of the choice."""
        if choice.harmless:
            return True
        node = choice.node
        if isinstance(node, ast.ExceptHandler):
            return _handles_imports(node)
        return isinstance(node, ast.expr) and self._fixed(node, choice.scope)

    def _fixed(self, node: ast.AST, scope: Scope) -> bool:
        if id(node) in self._busy or len(self._busy) > MAX_DEPTH:
            return False
        self._busy.add(id(node))
        try:
            return self._by_kind(node, scope)
        finally:
            self._busy.discard(id(node))

    def _by_kind(self, node: ast.AST, scope: Scope) -> bool:
        match node:
            case ast.Constant() | ast.Import() | ast.ImportFrom():
                return True
            case ast.Name():
                return self._name(node.id, scope)
            case ast.Attribute():
                return self._attribute(node, scope)
            case ast.Call():
                return self._call(node, scope)
            case ast.Compare() if _asks_for_none(node):
                return (
                    isinstance(node.left, ast.Name)
                    or is_of_self(node.left)
                    or self._fixed(node.left, scope)
                )
            case (
                ast.Compare()
                | ast.BinOp()
                | ast.UnaryOp()
                | ast.BoolOp()
                | ast.IfExp()
                | ast.Subscript()
                | ast.Tuple()
            ):
                pass
            case (
                ast.List()
                | ast.Set()
                | ast.Dict()
                | ast.JoinedStr()
                | ast.FormattedValue()
                | ast.Slice()
            ):
                pass
            case _:
                return False
        return all(
            self._fixed(child, scope)
            for child in ast.iter_child_nodes(node)
            if isinstance(child, ast.expr)
        )

    # -------------------------------------------------------------- names
    def _name(self, name: str, scope: Scope) -> bool:
        if name in self._changed:
            return False
        for depth in range(len(scope) - 1, -1, -1):
            function = scope[depth]
            if not isinstance(function, Function):
                continue
            bound = bindings(function).get(name)
            if bound is not None:
                return all(
                    value is not None and self._fixed(value, scope[: depth + 1]) for value in bound
                )
            if name in parameters_of(function):
                return self._parameter(name, function, scope[:depth])
        if name in self._module:
            return all(value is not None and self._fixed(value, ()) for value in self._module[name])
        return hasattr(builtins, name)

    def _parameter(self, name: str, function: Function, outer: Scope) -> bool:
        """Returns True if a parameter has a single value: of a constructor by the sizes, of a
        helper by its calls."""
        if name in ("self", "cls"):
            return False
        own_class = outer[-1] if outer and isinstance(outer[-1], ast.ClassDef) else None
        called = getattr(function, "name", "")
        if called == "__init__" and own_class is not None and own_class.name == "ModelNew":
            return name not in self._varying
        if called == "__init__" and own_class is not None:
            called = own_class.name
        elif called == "forward" or not called:
            return False
        index = parameters_of(function).index(name) - (own_class is not None)
        calls = [call for call in self._calls if name_called(call) == called]
        arguments = [_argument(call, index, name) for call in calls]
        return bool(arguments) and all(value is None or self._fixed(value, self._scope_of(call))
                                   for value, call in zip(arguments, calls, strict=True))  # fmt: skip

    def _returns_fixed(self, name: str) -> bool:
        """Returns True if functions of this name, called without arguments, return a determined
        value: `is_cuda()`."""
        functions = [
            n for n in ast.walk(self._tree) if isinstance(n, ast.FunctionDef) and n.name == name
        ]
        returned = [
            (node.value, function)
            for function in functions
            for node in ast.walk(function)
            if isinstance(node, ast.Return)
        ]
        return bool(returned) and all(
            value is not None and self._fixed(value, (function,)) for value, function in returned
        )

    def _scope_of(self, node: ast.AST) -> Scope:
        scope: Scope = ()
        for outer in ast.walk(self._tree):
            if isinstance(outer, Function | ast.ClassDef) and any(
                inner is node for inner in ast.walk(outer)
            ):
                scope = (*scope, outer)
        return scope

    # -------------------------------------------------------------- attributes and calls
    def _attribute(self, node: ast.Attribute, scope: Scope) -> bool:
        if node.attr in self._changed:
            return False
        if node.attr in FIXED_ATTRIBUTES and not (
            is_of_self(node) and node.attr in self._attributes
        ):
            return True
        if is_of_self(node):
            values = self._attributes.get(node.attr)
            return bool(values) and all(
                name == "__init__" and not is_container(value) and self._fixed(value, inner)
                for name, value, inner in values or ()
            )
        return self._fixed(
            node.value, scope
        )  # of a module (torch.float16), or of what is fixed (device.type)

    def _call(self, node: ast.Call, scope: Scope) -> bool:
        name = name_called(node)
        if name in FIXED_CALLS and name not in self._defined:
            return True
        if name in self._defined and not node.args and not node.keywords:
            return self._returns_fixed(name)
        if (
            name == "len"
            and node.args
            and isinstance(node.args[0], ast.Attribute)
            and node.args[0].attr == "shape"
        ):
            return True
        if name == "isinstance" and len(node.args) == 2 and _is_plain_class(node.args[1]):
            return True
        is_plain = isinstance(node.func, ast.Name) and name in (
            *EXCUSED_BUILTINS,
            "hasattr",
            "getattr",
            "isinstance",
        )
        is_plain = is_plain or (
            isinstance(node.func, ast.Name) and _is_pure_import(self._module.get(name, ()))
        )
        values = [*node.args, *(keyword.value for keyword in node.keywords)]
        return is_plain and all(self._fixed(value, scope) for value in values)


def _is_pure_import(bound: Collection[ast.AST | None]) -> bool:
    """Returns True for an imported function of its arguments alone, as `packaging.version.Version`."""
    return bool(bound) and all(
        isinstance(value, ast.ImportFrom) and (value.module or "").partition(".")[0] in PURE_MODULES
        for value in bound
    )


def _asks_for_none(node: ast.Compare) -> bool:
    right = node.comparators[0]
    return (
        isinstance(node.ops[0], ast.Is | ast.IsNot)
        and isinstance(right, ast.Constant)
        and right.value is None
    )


def _is_plain_class(node: ast.expr) -> bool:
    """Returns True if `isinstance` tests for a builtin type, or for any tensor."""
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    attributes = {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}
    return attributes <= {"Tensor", "Size", "dtype", "device"} and all(
        hasattr(builtins, n) or n == "torch" for n in names
    )


def _handles_imports(handler: ast.ExceptHandler) -> bool:
    """Returns True for a handler of features missing in other versions of a library."""
    names = (
        {part.id for part in ast.walk(handler.type) if isinstance(part, ast.Name)}
        if handler.type
        else set()
    )
    return bool(names) and names <= {"ImportError", "ModuleNotFoundError"}


def _argument(call: ast.Call, index: int, name: str) -> ast.expr | None:
    """Returns the argument of a call for a parameter; None for the default."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    return call.args[index] if 0 <= index < len(call.args) else None
