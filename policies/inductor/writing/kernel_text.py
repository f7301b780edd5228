"""Text of a kernel in a draft, with parameter names taken from its launches."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from kernelwright.policies.inductor.writing.divisors import (
    MAX_BINARIES,
    MAX_KERNELS_WITH_CONSTANT_DIVISORS,
    divisors_as_constants,
    inner_names,
    numbers_spread,
    quotients_named,
)
from kernelwright.policies.inductor.writing.expressions.tidying import use_augmented_assignments
from kernelwright.policies.inductor.writing.kernels import LoweredKernel
from kernelwright.policies.inductor.writing.launch import WrittenLaunch
from kernelwright.policies.inductor.writing.lines import break_long_lines, fold_items
from kernelwright.policies.inductor.writing.plain import (
    count_reads,
    rename_in_place,
    simplify_kernel,
)
from kernelwright.policies.inductor.writing.products.descriptors import (
    described_operands,
    gains_from_descriptors,
    read_by_descriptors,
)
from kernelwright.policies.inductor.writing.products.flat_products import flat_products
from kernelwright.policies.inductor.writing.products.grouping import group_tiles
from kernelwright.policies.inductor.writing.products.hoisting import hoist_divisions
from kernelwright.policies.inductor.writing.products.index_type import use_index_type
from kernelwright.policies.inductor.writing.products.input_precision import use_tf32_products
from kernelwright.policies.inductor.writing.products.parts import add_up_parts, without_round_trips
from kernelwright.policies.inductor.writing.products.tiles import has_many_tiles, written_extents
from kernelwright.policies.inductor.writing.products.two_axes import drop_axes_of_one
from kernelwright.policies.inductor.writing.words.naming import Names, roles_of
from kernelwright.policies.inductor.writing.words.parameters import parameter_names
from kernelwright.policies.inductor.writing.words.repeated_values import without_repetitions


# ------------------------------------------------------------------ kernels with the names of what they are given
@dataclass
class WrittenKernel:
    """A kernel's text, and which of its parameters each launch passes."""

    text: str
    parameters: list[str]
    """Inductor's names, in the order of the rewritten kernel."""


def write_kernel(
    kernel: LoweredKernel, launches: list[WrittenLaunch], docstring: str, beside: int
) -> WrittenKernel:
    """Writes a kernel with readable names, and says which of its old parameters are left.

    docstring: its lines, indented. beside: how many kernels the draft has.
    """
    # 1. Plain Triton, still with Inductor's names.
    function = simplify_kernel(kernel.function)
    read = count_reads(function)
    parameters = parameter_names(kernel, launches)
    first: dict[str, str] = {}
    remaining = []
    constant = {
        n
        for n, v in ((n, v) for s in function.body for n, v in _assigned(s))
        if isinstance(v, ast.Constant)
    }
    # 2. Drop parameters that are not read, and those with the value of an earlier one.
    for old in kernel.parameters:
        if old in constant:
            first[old] = parameters[old]
        elif old in kernel.blocks or (read[old] and parameters[old] not in first.values()):
            remaining.append(old)
        if read[old]:
            first.setdefault(old, parameters.get(old, old))
    function.name = kernel.name
    function.args.args = [a for a in function.args.args if a.arg in remaining]
    # 3. Readable names.
    names = Names(kernel, {k: v for k, v in parameters.items() if k not in kernel.blocks})
    names.give(function)
    rename_in_place(function, names)
    use_augmented_assignments(function)
    quotients_named(function)
    # 4. Products: operands as matrices, parts of fp32, the order of tiles, and the index type.
    if kernel.dot:
        without_round_trips(function)
        flat_products(function)
        kernel.in_parts = add_up_parts(function)
        drop_axes_of_one(function)
        hoist_divisions(function)
        if kernel.by_tf32:
            use_tf32_products(function)
        kernel.grouped = kernel.grid == "Grid2DWithYZOverflow" and group_tiles(function)
        kernel.indexed = use_index_type(function)
        large = all(has_many_tiles(kernel, launch.hints) for launch in launches)
        if kernel.half and kernel.grouped and large and gains_from_descriptors(function):
            kernel.described = _describe_operands(function, kernel, names, remaining)
    without_repetitions(function)
    # 5. Workarounds of Triton, and constants for divisors.
    numbers_spread(function)
    _constants(
        function,
        kernel,
        launches,
        parameters,
        None if beside <= MAX_KERNELS_WITH_CONSTANT_DIVISORS else names,
    )
    return WrittenKernel(_kernel_text(function, docstring), remaining)


def _describe_operands(
    function: ast.FunctionDef,
    kernel: LoweredKernel,
    names: Names,
    parameters: list[str],
) -> tuple[tuple[str, str], ...]:
    """Lets persistent programs read the operands through descriptors, if these can.

    Returns pointer and stride of each operand, in Inductor's names.
    """
    numbers = written_extents(kernel.function)
    extents = {}
    for letter, role in roles_of(kernel).items():
        extent = f"{letter}numel"
        extents[f"{role.upper()}_BLOCK"] = numbers.get(extent, names(extent))
    operands = described_operands(function, extents)
    if not operands:
        return ()
    read_by_descriptors(function, operands, extents)
    original = {names(old): old for old in parameters}
    return tuple((original[o.pointer], original.get(o.stride, o.stride)) for o in operands)


def _constants(
    function: ast.FunctionDef,
    kernel: LoweredKernel,
    launches: list[WrittenLaunch],
    parameters: dict[str, str],
    names: Names | None,
) -> None:
    """Makes divisors of the kernel constants, unless its launches pass too many different values.

    names: given for drafts of many kernels, in which only divisors of inner elements are
    constants.
    """
    inner, compared = None, set()
    if names is not None and (kernel.dot or kernel.kind != "pointwise"):
        inner = inner_names(function, [names("r0_index"), names("r1_index")])
    elif names is None and kernel.convolves:
        compared = {parameters[p] for p in ("xnumel", "r0_numel") if p in parameters}
    constants = divisors_as_constants(function, inner, compared)
    constant_names = {argument.arg for argument in constants}
    constant_parameters = [old for old, new in parameters.items() if new in constant_names]
    value_sets: set[tuple[str | None, ...]] = set()
    for launch in launches:
        value_sets.add(tuple(launch.arguments.get(old) for old in constant_parameters))
    if len(value_sets) > MAX_BINARIES:
        for argument in constants:
            argument.annotation = None


def _assigned(statement: ast.stmt) -> list[tuple[str, ast.expr]]:
    """Name and value, of `rows = 8`."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return [
        (t.id, statement.value)
        for t in targets
        if isinstance(t, ast.Name) and isinstance(statement, ast.Assign)
    ]


def _kernel_text(function: ast.FunctionDef, docstring: str) -> str:
    head, body = ast.unparse(ast.fix_missing_locations(function)).split("):\n", 1)
    decorator, head = head.split("\n", 1)
    opening, parameters_text = head.split("(", 1)
    signature = fold_items(f"{opening}(", parameters_text.split(", "), "):")
    return "\n".join([decorator, *signature, docstring, break_long_lines(body)])
