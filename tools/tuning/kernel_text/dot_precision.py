"""Precision of a kernel's products as a parameter: `input_precision` of each `tl.dot` in the
kernel.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from kernelwright.tools.tuning.kernel_text.kernel_syntax import KernelSyntax
from kernelwright.tools.tuning.kernel_text.launches import LaunchSyntax
from kernelwright.tools.tuning.kernel_text.parameters import Parameter, ParameterRole, Site
from kernelwright.tools.tuning.kernel_text.places import Text
from kernelwright.tools.tuning.kernel_text.resolving import Scopes, resolve
from kernelwright.tools.tuning.legal_values import DOT_PRECISIONS, TRITON_DEFAULTS

KEYWORD = "input_precision"


def precision_parameters(
    text: Text, scopes: Scopes, launches: Sequence[LaunchSyntax], kernels: Iterable[KernelSyntax]
) -> list[Parameter]:
    """Returns a parameter for each kernel whose products all have the same precision."""
    parameters_found = []
    for kernel in kernels:
        starts: set[str] = set()
        sites: dict[Site, None] = {}
        for dot in kernel.dots:
            precision = _of_dot(text, scopes, kernel, dot, launches)
            if precision is None:
                starts.clear()
                break
            starts.add(precision[0])
            sites |= dict.fromkeys(precision[1])
        # Products of different precisions, or a precision that is not written out, are not tuned.
        if len(starts) == 1:
            parameters_found.append(
                Parameter(
                    name=f"{kernel.name}.{KEYWORD}", role=ParameterRole.PRECISION, start=starts.pop(),
                    values=DOT_PRECISIONS, sites=tuple(sites), kernels=(kernel.name,), line=kernel.dots[0].lineno,
                    operands=_operands(kernel),
                )
            )  # fmt: skip
    return parameters_found


def _operands(kernel: KernelSyntax) -> tuple[str, ...]:
    """Returns the pointers through which operands of all products are loaded; empty if an operand
    is not loaded directly.
    """
    parameters = {a.arg for a in kernel.node.args.args}
    loaded: dict[str, set[str]] = {}
    for node in ast.walk(kernel.node):
        if (
            isinstance(node, ast.Assign)
            and len(node.targets) == 1
            and isinstance(node.targets[0], ast.Name)
        ):
            value = node.value
            name = node.targets[0].id
            plain = isinstance(value, ast.Call) and ast.unparse(value.func) == "tl.load"
            pointer = (
                value.args[0] if isinstance(value, ast.Call) and plain and value.args else None
            )
            # `a_ptr + offsets`: the pointer is the leftmost operand.
            while isinstance(pointer, ast.BinOp):
                pointer = pointer.left
            is_parameter = isinstance(pointer, ast.Name) and pointer.id in parameters
            loaded.setdefault(name, set()).add(
                pointer.id if isinstance(pointer, ast.Name) and is_parameter else ""
            )
    names: set[str] = set()
    for dot in kernel.dots:
        for operand in dot.args[:2]:
            names |= loaded.get(ast.unparse(operand), {""})
    return () if "" in names else tuple(sorted(names))


def _of_dot(
    text: Text,
    scopes: Scopes,
    kernel: KernelSyntax,
    dot: ast.Call,
    launches: Sequence[LaunchSyntax],
) -> tuple[str, list[Site]] | None:
    """Returns the precision of a product, written or Triton's default, and its site; None if not
    a literal.
    """
    for keyword in dot.keywords:
        if keyword.arg == KEYWORD:
            return _written(text, scopes, kernel, keyword.value, launches)
        if keyword.arg == "allow_tf32":
            value = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
            if not isinstance(value, bool):
                return None
            return ("tf32" if value else "ieee"), [text.site(keyword, f'{KEYWORD}="{{}}"')]
    if len(dot.args) > 3 or any(k.arg is None for k in dot.keywords):
        return None
    return str(TRITON_DEFAULTS[ParameterRole.PRECISION]), [text.argument(dot, KEYWORD, '"{}"')]


def _written(
    text: Text,
    scopes: Scopes,
    kernel: KernelSyntax,
    value: ast.expr,
    launches: Sequence[LaunchSyntax],
) -> tuple[str, list[Site]] | None:
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return value.value, [text.site(value, '"{}"')]
    if not isinstance(value, ast.Name):
        return None
    if value.id in kernel.constexprs:
        bound_values = [
            launch.bound.get(value.id) for launch in launches if launch.kernel is kernel
        ]
        resolved = [resolve(scopes, expression) for expression in bound_values]
    else:
        resolved = [resolve(scopes, value)]
    literals = [r.literal for r in resolved if r is not None and isinstance(r.literal.value, str)]
    if len(literals) != len(resolved) or len({literal.value for literal in literals}) != 1:
        return None
    return str(literals[0].value), [text.site(literal, '"{}"') for literal in literals]
