"""Merges kernels that differ in integers only, which become parameters.

Example: a kernel with `x1 = xindex % 64` in one block of a network and its twin with `% 128` in
the next become a
kernel with `% ks1000`, launched with 64 and with 128.
"""

from __future__ import annotations

import ast
import copy
import re
from dataclasses import replace

from kernelwright.policies.inductor.writing.kernels import LoweredKernel, rename_kernels
from kernelwright.policies.inductor.writing.launch import Host

NUMEL = re.compile(r"[xyz]numel|r\d_numel")
MERGED_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.Div)
Places = list[tuple[ast.AST, str, int | None]]
"""Node, its field, and which of the field's elements a constant is."""


def merge_kernels(kernels: dict[str, LoweredKernel], host: Host) -> None:
    """Lets all launches of equal kernels launch the first of them, in place; the others lose
    their launches.
    """
    groups: dict[str, list[LoweredKernel]] = {}
    launched = {launch.kernel.original for launch in host.launches()}
    for kernel in kernels.values():
        if kernel.original in launched:
            groups.setdefault(_form(kernel), []).append(kernel)
    for group in groups.values():
        if len(group) > 1:
            _merge(group, host)
    remaining = {launch.kernel.original: launch.kernel for launch in host.launches()}
    rename_kernels([kernel for original, kernel in kernels.items() if original in remaining])


def _form(kernel: LoweredKernel) -> str:
    """Returns a key that is equal for mergeable kernels: the kernel without its integers."""
    if kernel.helpers:
        return kernel.original
    function = copy.deepcopy(kernel.function)
    function.name, function.decorator_list = "_", []
    for node, field, at in _numbers(function):
        _replace_at(node, field, at, ast.Name("number"))
    kinds = (
        kernel.kind,
        kernel.dot,
        kernel.persistent,
        kernel.inner,
        kernel.grid,
        kernel.splits,
        kernel.convolves,
    )
    return f"{kinds} {ast.dump(function)}"


def _merge(group: list[LoweredKernel], host: Host) -> None:
    first = group[0]
    number_slots = [_numbers(kernel.function) for kernel in group]
    values = [
        tuple(_integer_at(*slot) for slot in slots) for slots in zip(*number_slots, strict=True)
    ]
    name_of_numbers: dict[tuple[int, ...], str] = {}
    # Numbers that differ between the kernels become parameters; the first kernel stays.
    for slot, numbers in zip(number_slots[0], values, strict=True):
        if len(set(numbers)) > 1 and not _is_extent(slot[0]):
            name = name_of_numbers.setdefault(numbers, f"ks{1000 + len(name_of_numbers)}")
            _replace_at(*slot, ast.Name(name, ast.Load()))
    # Extents that differ are passed by the launches, so their assignments are removed.
    extents = {name for kernel in group[1:] for name in _other_extents(first, kernel)}
    first.function.body = [
        s for s in first.function.body if not (_is_extent(s) and _extent(s)[0] in extents)
    ]
    _add_parameters(first.function, list(name_of_numbers.values()))
    first.operators = tuple(dict.fromkeys(o for kernel in group for o in kernel.operators))
    first.common = tuple(
        o for o in first.operators if all(o in kernel.operators for kernel in group)
    )
    by_kernel = {kernel.original: i for i, kernel in enumerate(group)}
    hints = [dict(kernel.hints) for kernel in group]
    for launch in host.launches():
        if (kernel_number := by_kernel.get(launch.kernel.original)) is not None:
            launch.arguments |= {
                name: str(numbers[kernel_number]) for numbers, name in name_of_numbers.items()
            }
            launch.kernel, launch.hints = first, hints[kernel_number]


def _numbers(function: ast.FunctionDef) -> Places:
    """Whole numbers in arithmetic and comparisons, and extents of sides; not those of shapes, blocks and axes."""
    slots: Places = []
    for node in ast.walk(function):
        if isinstance(node, ast.BinOp) and isinstance(node.op, MERGED_OPERATORS):
            slots += [
                (node, side, None) for side in ("left", "right") if _is_integer(getattr(node, side))
            ]
        elif isinstance(node, ast.Compare):
            slots += [(node, "left", None)] * _is_integer(node.left)
            slots += [
                (node, "comparators", i) for i, c in enumerate(node.comparators) if _is_integer(c)
            ]
        elif _is_extent(node):
            slots.append((node, "value", None))
    return slots


def _is_integer(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int


def _integer_at(node: ast.AST, field: str, at: int | None) -> int:
    value = getattr(node, field)
    return int((value if at is None else value[at]).value)


def _replace_at(node: ast.AST, field: str, at: int | None, new: ast.expr) -> None:
    if at is None:
        setattr(node, field, new)
    else:
        getattr(node, field)[at] = new


def _is_extent(node: ast.AST) -> bool:
    """Whether it is `xnumel = 64`."""
    if (
        not isinstance(node, ast.Assign)
        or len(node.targets) != 1
        or not isinstance(node.targets[0], ast.Name)
    ):
        return False
    return bool(NUMEL.fullmatch(node.targets[0].id)) and _is_integer(node.value)


def _extent(node: ast.stmt) -> tuple[str, int]:
    assert isinstance(node, ast.Assign)
    return ast.unparse(node.targets[0]), _integer_at(node, "value", None)


def _other_extents(first: LoweredKernel, other: LoweredKernel) -> set[str]:
    """The extents the two do not share."""
    extents = dict(_extent(s) for s in first.function.body if _is_extent(s))
    return {
        name
        for s in other.function.body
        if _is_extent(s)
        for name, n in [_extent(s)]
        if extents.get(name) != n
    }


def _add_parameters(function: ast.FunctionDef, names: list[str]) -> None:
    """Gives the function these parameters, before its blocks."""
    arguments = function.args.args
    position = next((i for i, a in enumerate(arguments) if a.arg.endswith("BLOCK")), len(arguments))
    arguments[position:position] = [ast.arg(name) for name in names]
    ast.fix_missing_locations(function)


def with_extents(kernel: LoweredKernel, hints: dict[str, int] | None) -> LoweredKernel:
    """Returns the kernel with the extents of a launch."""
    return kernel if hints is None else replace(kernel, hints=hints)
