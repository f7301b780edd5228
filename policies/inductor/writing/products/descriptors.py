"""Products whose operands are read through tensor descriptors by persistent programs.

A descriptor lets the copy unit of an H100 (TMA) fetch a whole tile with one instruction, and without registers for
addresses. Making one takes about a microsecond, so a program makes its descriptors once, and computes one tile after
the other. Measured on an H200 (2026-11-28, bf16), rows x depth x columns:

| product | one program for each tile | persistent, descriptors | cuBLAS |
|---|---|---|---|
| layer with a bias, 4096 x 8192 x 2048 | 246 us | 176 us | 174 us |
| layer with a bias, 8192 x 3072 x 768 | 102 us | 66 us | 56 us |
| gate and values, 4096 x 2048 x 8192 | 457 us | 403 us | 442 us with the gate |
| layer with a GELU, 8192 x 768 x 3072 | 107 us | 105 us | 99 us with the GELU |
| query, key and value, 8192 x 768 x 768 | 68 us | 75 us | 57 us |

So a single product whose epilogue is cheap and a pair of products are written so; others stay as they are.

Example: in the loop over steps,

    x = tl.load(x_pointer + (left_step + 768 * left_row), left_step_exists & left_row_exists, other=0.0)

becomes, where the operands begin at whole 16 bytes (DESCRIBED, a constant of the kernel),

    x = x_tiles.load([first_row.to(tl.int32), first_step])

with `x_tiles = tl.make_tensor_descriptor(x_pointer, [rows, 768], [768, 1], [ROW_BLOCK, STEP_BLOCK])` before the loop.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from kernelwright.policies.inductor.syntax import names_assigned, names_in
from kernelwright.policies.inductor.writing.plain import assignments
from kernelwright.policies.inductor.writing.products.grouping import GROUPED, ROW_PROGRAM

FLAG = "DESCRIBED"
ALIGNED_ELEMENTS = 8
"""Elements of half precision in 16 bytes, at which rows have to begin."""
TILE_LOOP = (
    "for tile in tl.range("
    "tl.program_id(0), row_tiles * column_tiles, tl.num_programs(0){flat}): pass"
)
CHEAP_CALLS = frozenset({"load", "store", "arange", "full", "zeros", "to", "where", "maximum", "minimum", "swizzle2d",
    "program_id", "num_programs", "broadcast_to", "range"})  # fmt: skip
"""Functions of an epilogue that takes little time beside its product; the next tile is loaded meanwhile."""
TILE_OF_PROGRAM = (
    "row_tile, column_tile = tl.swizzle2d("
    "tile // column_tiles, tile % column_tiles, row_tiles, column_tiles, GROUP)"
)
DESCRIPTOR_HELPERS = {
    "persistent_grid(": '''def allocate(size, alignment, stream):
    """Memory for the descriptors that a kernel makes."""
    return torch.empty(size, device="cuda", dtype=torch.int8)


def persistent_grid(tensor, tiles):
    """One program for each multiprocessor, or for each tile if these are fewer."""
    triton.set_allocator(allocate)
    return (min(torch.cuda.get_device_properties(tensor.device).multi_processor_count, tiles),)''',
    "is_aligned(": '''def is_aligned(*operands):
    """Whether matrices, told with the strides of their rows, begin at whole 16 bytes, as a tensor descriptor needs."""
    steps = [(step * x.element_size(), x.storage_offset() * x.element_size()) for x, step in operands]
    return all(step % 16 == 0 and offset % 16 == 0 for step, offset in steps)''',
}
"""Host functions of a draft, by the text of their calls."""


@dataclass(frozen=True)
class _Axis:
    """One axis of a tile: `row = first_row + tl.arange(0, ROW_BLOCK)[:, None]`."""

    first: str
    block: str
    number: int
    """0 for the rows of the tile, 1 for its columns."""


@dataclass(frozen=True)
class Operand:
    """An operand of a product that a descriptor can read."""

    name: str
    pointer: str
    stride: str
    """Distance of two rows in memory: a number or a parameter."""
    outer: _Axis
    """Axis whose elements lie `stride` apart."""
    inner: _Axis
    """Axis whose elements lie side by side."""

    @property
    def is_turned(self) -> bool:
        """Whether the tile lies in memory as its transpose."""
        return self.outer.number == 1

    def definition(self, extents: dict[str, str]) -> str:
        """Returns the statement that makes the descriptor."""
        axes = (self.outer, self.inner)
        shape = ", ".join(extents[axis.block] for axis in axes)
        blocks = ", ".join(axis.block for axis in axes)
        return (
            f"{self.name}_tiles = tl.make_tensor_descriptor("
            f"{self.pointer}, [{shape}], [{self.stride}, 1], [{blocks}])"
        )

    def load(self, step: str) -> str:
        """Returns the statement that reads a tile. step: name of the loop's variable."""
        places = [
            axis.first if axis.first == step else f"({axis.first}).to(tl.int32)"
            for axis in (self.outer, self.inner)
        ]
        turned = ".T" if self.is_turned else ""
        return f"{self.name} = {self.name}_tiles.load([{', '.join(places)}]){turned}"


class _NotDescribed(Exception):
    """Raised for a kernel other than a product of row- or column-major matrices."""


def described_operands(function: ast.FunctionDef, extents: dict[str, str]) -> list[Operand]:
    """Returns the operands of a product with one tile for each program, or none if a descriptor cannot read them all.

    extents: number of elements along each block, as a number or a parameter.
    """
    loops = [s for s in function.body if isinstance(s, ast.For)]
    if len(loops) != 1 or ast.unparse(function.body[0]) != ast.unparse(ast.parse(GROUPED)):
        return []
    try:
        operands = _operands(function, loops[0])
    except _NotDescribed:
        return []
    blocks = {axis.block for operand in operands for axis in (operand.outer, operand.inner)}
    parameters = {a.arg for a in function.args.args}
    known = all(
        _is_known(extents.get(block, ""), parameters)
        for block in blocks | {"ROW_BLOCK", "COLUMN_BLOCK"}
    )
    return operands if known and _is_simple(function, loops[0], operands) else []


def gains_from_descriptors(function: ast.FunctionDef) -> bool:
    """Whether a kernel is a pair of products, or a single product with a cheap epilogue."""
    products = _count_products(function)
    if products != 1:
        return products == 2
    epilogue = [s for s in function.body if not isinstance(s, ast.For)]
    calls = [n.func for s in epilogue for n in ast.walk(s) if isinstance(n, ast.Call)]
    return {ast.unparse(call).rpartition(".")[2] for call in calls} <= CHEAP_CALLS


def _count_products(function: ast.FunctionDef) -> int:
    return sum(ast.unparse(n) == "tl.dot" for n in ast.walk(function))


def read_by_descriptors(
    function: ast.FunctionDef, operands: list[Operand], extents: dict[str, str]
) -> None:
    """Lets persistent programs read the operands through descriptors, in place."""
    (loop,) = [s for s in function.body if isinstance(s, ast.For)]
    # In one flat loop the next tile is loaded while this one is stored: for pairs, too many registers.
    flat = ", flatten=True" if _count_products(function) == 1 else ""
    _describe_loads(loop, operands)
    _make_persistent(function, operands, extents, TILE_LOOP.format(flat=flat))
    function.args.args.append(ast.arg(FLAG, ast.parse("tl.constexpr", mode="eval").body))
    ast.fix_missing_locations(function)


def _is_known(extent: str, parameters: set[str]) -> bool:
    return extent.isdigit() or extent in parameters


# ------------------------------------------------------------------ what a loop reads
def _operands(function: ast.FunctionDef, loop: ast.For) -> list[Operand]:
    """Returns the operands of the loop's products, in order. Raises _NotDescribed."""
    loaded = dict(assignments(loop))
    operands: dict[str, Operand] = {}
    for node in ast.walk(loop):
        if not isinstance(node, ast.Call) or ast.unparse(node.func) != "tl.dot":
            continue
        for argument in node.args[:2]:
            if not isinstance(argument, ast.Name) or argument.id not in loaded:
                raise _NotDescribed
            if argument.id not in operands:
                load = loaded[argument.id]
                operands[argument.id] = _operand(function, argument.id, load)
    return list(operands.values())


def _operand(function: ast.FunctionDef, name: str, load: ast.expr) -> Operand:
    """Reads `tl.load(pointer + (inner + stride * outer), ..., other=0.0)`. Raises _NotDescribed."""
    if not isinstance(load, ast.Call) or ast.unparse(load.func) != "tl.load":
        raise _NotDescribed
    address = load.args[0]
    if not isinstance(address, ast.BinOp) or not isinstance(address.left, ast.Name):
        raise _NotDescribed
    defined = dict(assignments(function))
    inner, outer, stride = None, None, ""
    terms = address.right
    if not isinstance(address.op, ast.Add) or not isinstance(terms, ast.BinOp):
        raise _NotDescribed
    if not isinstance(terms.op, ast.Add):
        raise _NotDescribed
    for term in (terms.left, terms.right):
        if isinstance(term, ast.Name):
            inner = _axis(term.id, defined)
        elif isinstance(term, ast.BinOp) and isinstance(term.op, ast.Mult):
            factor, index = term.left, term.right
            if isinstance(index, ast.Constant) or (
                isinstance(index, ast.Name) and index.id not in defined
            ):
                factor, index = index, factor
            if not isinstance(index, ast.Name) or not isinstance(factor, ast.Name | ast.Constant):
                raise _NotDescribed
            outer, stride = _axis(index.id, defined), ast.unparse(factor)
    parameters = {a.arg for a in function.args.args}
    if inner is None or outer is None or inner.number == outer.number:
        raise _NotDescribed
    if not _is_known(stride, parameters) or (
        stride.isdigit() and int(stride) % ALIGNED_ELEMENTS != 0
    ):
        raise _NotDescribed
    return Operand(name, address.left.id, stride, outer, inner)


def _axis(index: str, defined: dict[str, ast.expr]) -> _Axis:
    """Reads `first_row + tl.arange(0, ROW_BLOCK)[:, None]`. Raises _NotDescribed."""
    value = defined.get(index)
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Add):
        raise _NotDescribed
    first, inside = value.left, value.right
    if isinstance(inside, ast.Name):
        inside = defined.get(inside.id, inside)
    ranges = [
        n
        for n in ast.walk(inside)
        if isinstance(n, ast.Call) and ast.unparse(n.func) == "tl.arange" and len(n.args) == 2
    ]
    slices = [ast.unparse(n.slice) for n in ast.walk(inside) if isinstance(n, ast.Subscript)]
    numbers = {"(:, None)": 0, ":, None": 0, "(None, :)": 1, "None, :": 1}
    if names_in(first) & {"tl"} or len(ranges) != 1 or len(slices) != 1:
        raise _NotDescribed
    if slices[0] not in numbers:
        raise _NotDescribed
    return _Axis(ast.unparse(first), ast.unparse(ranges[0].args[1]), numbers[slices[0]])


# ------------------------------------------------------------------ rewriting
def _before_products(loop: ast.For) -> int:
    """Returns how many statements of a loop come before its first product."""
    for number, statement in enumerate(loop.body):
        if any(ast.unparse(n) == "tl.dot" for n in ast.walk(statement)):
            return number
    return len(loop.body)


def _is_simple(function: ast.FunctionDef, loop: ast.For, operands: list[Operand]) -> bool:
    """Whether nothing but the operands is computed between the loop's begin and its products, and nothing but the
    tile of a program depends on its number.
    """
    number = _before_products(loop)
    read_later = names_in(*loop.body[number:], *[s for s in function.body if s is not loop])
    read_later -= {operand.name for operand in operands}
    if names_assigned(*loop.body[:number]) & read_later:
        return False
    return "tl.program_id(" not in _text_of_tile(function.body[1:])


def _describe_loads(loop: ast.For, operands: list[Operand]) -> None:
    """Reads the operands by descriptors, or as before where these are not aligned."""
    number, step = _before_products(loop), ast.unparse(loop.target)
    choice = ast.parse(f"if {FLAG}:\n    pass\nelse:\n    pass").body[0]
    assert isinstance(choice, ast.If)
    choice.body = ast.parse("\n".join(operand.load(step) for operand in operands)).body
    choice.orelse = loop.body[:number]
    loop.body = [choice, *loop.body[number:]]


def _text_of_tile(body: list[ast.stmt]) -> str:
    """Returns the statements of one tile, whose number is `row_tile` and `column_tile`."""
    row_tile = ROW_PROGRAM.replace("tl.program_id(1)", "row_tile")
    return "\n".join(ast.unparse(statement) for statement in body).replace(
        f"({row_tile})", "row_tile"
    )


def _make_persistent(
    function: ast.FunctionDef, operands: list[Operand], extents: dict[str, str], tile_loop: str
) -> None:
    """Puts the kernel's body into a loop over tiles, after the definitions of the descriptors."""
    body = function.body[1:]
    constants = [s for s in body if isinstance(s, ast.Assign) and isinstance(s.value, ast.Constant)]
    rest = [s for s in body if s not in constants]
    unique = {ast.unparse(s): s for s in constants}
    described = ast.parse(
        f"if {FLAG}:\n"
        + "".join(f"    {operand.definition(extents)}\n" for operand in operands)
        + f"row_tiles = tl.cdiv({extents['ROW_BLOCK']}, ROW_BLOCK)\n"
        + f"column_tiles = tl.cdiv({extents['COLUMN_BLOCK']}, COLUMN_BLOCK)\n"
    ).body
    tiles = ast.parse(tile_loop).body[0]
    assert isinstance(tiles, ast.For)
    tiles.body = [*ast.parse(TILE_OF_PROGRAM).body, *ast.parse(_text_of_tile(rest)).body]
    function.body = [*unique.values(), *described, tiles]
