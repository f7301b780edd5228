"""The host side: Inductor's `call`, statement by statement, as lines of `ModelNew.forward`."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from collections.abc import Set as AbstractSet

from kernelwright.policies.inductor.refusing import DraftRefused
from kernelwright.policies.inductor.tracing.execution import simple_path
from kernelwright.policies.inductor.writing.blocks import (
    block_sizes,
    choose_stages,
    choose_warps,
    fit_block,
)
from kernelwright.policies.inductor.writing.expressions.sums import is_size, plain_sum
from kernelwright.policies.inductor.writing.kernel_text import WrittenKernel
from kernelwright.policies.inductor.writing.kernels import LoweredKernel
from kernelwright.policies.inductor.writing.launch import Host, Loop, WrittenLaunch
from kernelwright.policies.inductor.writing.layouts import (
    Layout,
    is_contiguous,
    product_text,
    tuple_elements,
    view_of,
)
from kernelwright.policies.inductor.writing.lines import WIDTH, fold_items
from kernelwright.policies.inductor.writing.products.attention import (
    LIBRARY_NAME,
    attention_statements,
    is_attention,
)
from kernelwright.policies.inductor.writing.products.descriptors import FLAG
from kernelwright.policies.inductor.writing.repeats.merging import with_extents
from kernelwright.policies.inductor.writing.words.modules import name_products
from kernelwright.policies.inductor.writing.words.naming import result_name, roles_of
from kernelwright.policies.inductor.writing.words.stored import stored_words

SKIPPED_LINES = re.compile(
    r"(args\b|with |torch\.cuda|raw_stream|stream\d|assert_|device_guard|\w+_size = |s\d+ = arg)|.* = args$|del "
)
STEPS = "torch.ops.kernelwright.steps"
LIBRARY = re.compile(r"(?:extern_kernels|torch\.ops\.\w+|\baten)\.(\w+)")


ROW_TILES_PER_GROUP = 8
"""Tiles of rows with common columns in the L2 cache."""
Looped = Callable[[ast.Call], "tuple[Loop, list[str]]"]
"""Operator call of a loop -> the loop, and the names of its results."""


def read_call(
    text: str,
    kernels: dict[str, LoweredKernel],
    arguments: list[str],
    symbols: dict[str, str],
    looped: Looped,
    layouts: dict[str, Layout],
) -> Host:
    """Reads Inductor's `call` function as host code.

    arguments: expressions of ModelNew for the graph's arguments. symbols: symbol -> name in
    forward. layouts: layouts of
    existing tensors; layouts of allocated tensors are added.
    """
    tree = ast.parse(text)
    call = next(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "call")
    new, host = dict(symbols), Host()
    plain = _Plain(new, layouts)
    gives: dict[str, list[str]] = {}
    for statement in _flat(call.body):
        line = ast.unparse(statement)
        # The graph's arguments get the expressions of ModelNew.
        if line.endswith(" = args") and isinstance(statement, ast.Assign):
            target = statement.targets[0]
            names = (
                [ast.unparse(e) for e in target.elts]
                if isinstance(target, ast.Tuple)
                else [ast.unparse(target)]
            )
            new |= dict(zip(names, arguments, strict=True))
        elif isinstance(statement, ast.Assign) and re.fullmatch(
            # Extents are inlined: `xnumel = s0 * s1`.
            r"\w+_(\w)?numel|ps\d+",
            line.split(" = ")[0],
        ):
            new[line.split(" = ")[0]] = f"({ast.unparse(plain.visit(statement.value))})"
        # The operator of a loop; its results are named by `loops.py`.
        elif STEPS in line and isinstance(statement, ast.Assign):
            loop, gives[ast.unparse(statement.targets[0])] = looped(plain.visit(statement.value))
            host.steps.append(loop)
            for row, allocation in loop.rows.items():
                plain.visit(ast.parse(f"{row} = {allocation}").body[0])  # for its layout
        elif (match := re.fullmatch(r"(\w+) = (\w+)\[(\d+)\]", line)) and match[2] in gives:
            new[match[1]] = gives[match[2]][int(match[3])]
        # A buffer that continues under another name.
        elif match := re.fullmatch(r"(buf\d+) = (buf\d+)", line):
            new[match[1]] = new.get(match[2], match[2])
        elif not SKIPPED_LINES.match(line) and not re.fullmatch(r"s\d+ = \w+", line):
            _read_statement(host, plain.visit(statement), kernels)
    return host


def _flat(body: list[ast.stmt]) -> list[ast.stmt]:
    return [s for b in body for s in (_flat(b.body) if isinstance(b, ast.With) else [b])]


def _read_statement(host: Host, statement: ast.stmt, kernels: dict[str, LoweredKernel]) -> None:
    line = ast.unparse(statement)
    if isinstance(statement, ast.Return):
        assert isinstance(statement.value, ast.Tuple)
        host.returned = [ast.unparse(e) for e in statement.value.elts]
        return
    if (
        isinstance(statement, ast.Expr)
        and (match := re.match(r"(\w+)\.run\(", line))
        and match[1] in kernels
    ):
        assert isinstance(statement.value, ast.Call)
        kernel = kernels[match[1]]
        passed = [p for p in kernel.parameters if p not in kernel.blocks]
        host.steps.append(
            WrittenLaunch(
                kernel, dict(zip(passed, map(ast.unparse, statement.value.args), strict=True))
            )
        )
        return
    if ".item()" in line:
        raise DraftRefused("a size or a branch depends on the values of a tensor")
    if is_attention(line):
        statements, is_library = attention_statements(statement)
        host.library += [LIBRARY_NAME] * is_library
        host.steps += statements
        return
    if "_tensor_constant" not in line and (called := LIBRARY.search(line)):
        host.library.append(called[1])
    host.steps.append(ast.parse(line.replace("extern_kernels.", "torch.")).body[0])


def keep_channels_last(host: Host) -> None:
    """Makes results of two-dimensional convolutions contiguous in channels-last order, which is
    free if they are.
    """
    steps: list[WrittenLaunch | Loop | ast.stmt] = []
    for step in host.steps:
        steps.append(step)
        called = step.value if isinstance(step, ast.Assign) else None
        if isinstance(step, ast.Assign) and isinstance(called, ast.Call):
            strides = [k.value for k in called.keywords if k.arg == "stride"]
            over_two = strides and len(getattr(strides[0], "elts", ())) == 2
            if ast.unparse(called.func) == "torch.convolution" and over_two:
                name = ast.unparse(step.targets[0])
                steps += ast.parse(
                    f"{name} = {name}.contiguous(memory_format=torch.channels_last)"
                ).body
    host.steps[:] = steps


class _Plain(ast.NodeTransformer):
    """Names as ModelNew has them, and torch's own calls for those of Inductor's runtime."""

    def __init__(self, new: dict[str, str], layouts: dict[str, Layout]) -> None:
        self._new, self._layouts = new, layouts

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.parse(self._new.get(node.id, node.id), mode="eval").body

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        return plain_sum(node, is_size)

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        self.generic_visit(node)
        if isinstance(node.value, ast.Call) and ast.unparse(node.value.func) in (
            "torch.empty",
            "torch.empty_strided",
        ):
            sizes, *strides = [tuple_elements(ast.unparse(a)) for a in node.value.args]
            contiguous = tuple(product_text(sizes[i + 1 :]) for i in range(len(sizes)))
            self._layouts[ast.unparse(node.targets[0])] = (
                sizes,
                strides[0] if strides else contiguous,
            )
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        name, arguments = ast.unparse(node.func), [ast.unparse(a) for a in node.args]
        if name.startswith("empty_strided_"):
            return _allocation(*arguments[:3])
        if (
            name == "reinterpret_tensor"
        ):  # counts from where its tensor begins, as_strided from where the storage does
            if arguments[3] == "0":
                layout = tuple_elements(arguments[1]), tuple_elements(arguments[2])
                return ast.parse(
                    view_of(arguments[0], self._layouts.get(arguments[0]), layout), mode="eval"
                ).body
            shift = f"{arguments[0]}.storage_offset() + {arguments[3]}"
            return ast.parse(
                f"torch.as_strided({', '.join(arguments[:3])}, {shift})", mode="eval"
            ).body
        if name == "torch.device" or any(k.arg == "device" for k in node.keywords):
            for keyword in node.keywords:
                if keyword.arg == "device":
                    keyword.value = ast.Name("device", ast.Load())
        return node


def _allocation(shape: str, strides: str, dtype: str) -> ast.expr:
    """Returns the allocation; `torch.empty` for contiguous strides."""
    plain = is_contiguous((tuple_elements(shape), tuple_elements(strides)))
    opening = f"torch.empty({shape}, " if plain else f"torch.empty_strided({shape}, {strides}, "
    return ast.parse(f"{opening}device=device, dtype={dtype})", mode="eval").body


def name_buffers(host: Host, used_names: set[str], matrices: AbstractSet[str]) -> None:
    """Renames buffers (`buf3`) after the modules whose weights are multiplied, or after the kernels that write them.

    The result of forward is `out` if it is one tensor. used_names: names that no buffer may have. matrices:
    expressions of the weights with two axes and more.
    """
    new: dict[str, str] = {}
    products = name_products(host, matrices)
    whole_result = host.returned[0] if len(host.returned) == 1 else ""
    if re.fullmatch(r"buf\d+", whole_result) and "out" not in used_names:
        new[whole_result] = "out"
        used_names.add("out")
    for launch in host.launches():
        # `reduce_matmul` is the product with the weight of self.reduce; `softmax_kernel` writes `softmax`, and in a
        # second launch `softmax_2`.
        words = launch.kernel.name.removesuffix("_kernel").removesuffix("_row")
        words = products.get(id(launch), words)
        parts = _parts_names(launch, new) if launch.kernel.splits else _reduced_names(launch)
        sources = [new.get(v, v) for p, v in launch.arguments.items() if p.startswith("in_ptr")]
        for parameter, value in launch.arguments.items():
            if "out_ptr" in parameter and re.fullmatch(r"buf\d+", value) and value not in new:
                name, number = result_name(words, launch.kernel, sources), 2
                name = parts.get(parameter, name)
                base = re.sub(r"_[0-9]+$", "", words if name.startswith(words) else name)
                while name in used_names:
                    name, number = f"{base}_{number}", number + 1
                used_names.add(name)
                new[value] = name

    def rename(text: str) -> str:
        return re.sub(r"\bbuf\d+\b", lambda m: new.get(m[0], m[0].replace("buf", "tensor_")), text)

    _rename_in(host, rename)


def _reduced_names(launch: WrittenLaunch) -> dict[str, str]:
    """Returns names for the outputs of a reduction kernel with several outputs, such as `mean`
    and `squares`.
    """
    outputs = [p for p in launch.arguments if "out_ptr" in p]
    return stored_words(launch.kernel.function) if len(outputs) > 1 else {}


def _parts_names(launch: WrittenLaunch, name_of_buffer: dict[str, str]) -> dict[str, str]:
    """Returns names for the outputs of an operand-splitting kernel: `x_exponent` (if new),
    `x_high` and `x_low`.
    """
    operand = [v for p, v in launch.arguments.items() if p.startswith("in_ptr")][-1]
    name = simple_path(
        name_of_buffer.get(operand, operand if re.fullmatch(r"[\w.\[\]]+", operand) else "operand")
    )
    outputs = [p for p in launch.arguments if "out_ptr" in p]
    return dict(
        zip(reversed(outputs), (f"{name}_low", f"{name}_high", f"{name}_exponent"), strict=False)
    )


def _rename_in(host: Host, rename: Callable[[str], str]) -> None:
    for position, step in enumerate(host.steps):
        if isinstance(step, WrittenLaunch):
            step.arguments = {p: rename(v) for p, v in step.arguments.items()}
        elif isinstance(step, Loop):
            step.first = {n: rename(v) for n, v in step.first.items()}
            step.aliases = {n: rename(v) for n, v in step.aliases.items()}
            _rename_in(step.host, rename)
        else:
            host.steps[position] = ast.parse(rename(ast.unparse(step))).body[0]
    host.returned = [rename(v) for v in host.returned]


def launch_lines(launch: WrittenLaunch, written: WrittenKernel) -> list[str]:
    """The launch as lines of forward."""
    kernel, values = with_extents(launch.kernel, launch.hints), launch.arguments
    roles = roles_of(kernel)
    sizes = block_sizes(kernel)
    # Numbers of elements per side, as the launch passes them.
    extents = {letter: values.get(f"{letter}numel", "1") for letter in (*"xyz", "r0_", "r1_")}
    passed = [values[p] for p in written.parameters if p not in kernel.blocks]
    names: dict[str, str] = {}
    blocks: list[str] = []
    counts: dict[str, int] = {}
    for block, size in sizes.items():
        side = block.removesuffix("BLOCK").lower()
        names[side] = f"{roles[side].upper()}_BLOCK"
        counts[side] = size
        blocks.append(f"{names[side]}={fit_block(kernel, block, size, extents[side])}")
    options = [f"num_warps={choose_warps(kernel, sizes)}"]
    if (number := choose_stages(kernel)) is not None:
        options.append(f"num_stages={number}")
    if kernel.grouped:
        options.insert(0, f"GROUP={ROW_TILES_PER_GROUP}")
    if kernel.indexed:
        # The index type is chosen at run time, by the sizes of the tensors that the kernel
        # reaches.
        reached = dict.fromkeys(values[p] for p in written.parameters if "ptr" in p)
        options.insert(0, f"INDEX=index_type({', '.join(reached)})")
    if kernel.described:
        pairs = dict.fromkeys(f"({values[p]}, {values.get(s, s)})" for p, s in kernel.described)
        options.insert(0, f"{FLAG}=is_aligned({', '.join(pairs)})")
    grid = _grid(kernel, extents, counts, names, values)
    arguments = fold_items("", passed, "", " " * 12)
    arguments = [f"    {passed_line.strip()}" for passed_line in arguments if passed_line.strip()]
    arguments[-1] = arguments[-1].rstrip(",") + ","
    numbers = [
        f"    {line.strip()}"
        for line in fold_items("", [*blocks, *options], "", " " * 12)
        if line.strip()
    ]
    numbers[-1] = numbers[-1].rstrip(",") + ","
    head = [f"{kernel.name}[{grid}]("]
    if len(head[0]) + 8 > WIDTH:
        opening, parts = _grid_parts(grid)
        head = [f"{kernel.name}[{opening}", *(f"    {part}," for part in parts), ")]("]
    return [*head, *arguments, *numbers, ")"]


def _grid(
    kernel: LoweredKernel,
    extents: dict[str, str],
    counts: dict[str, int],
    names: dict[str, str],
    values: dict[str, str],
) -> str:
    """Returns the number of programs as a function of the block sizes, so that the two stay consistent."""

    def count(letter: str) -> str:
        if counts.get(letter, 1) == 1:
            return extents[letter]
        return f'triton.cdiv({extents[letter]}, block["{names[letter]}"])'

    if kernel.described:
        tensor = values[kernel.described[0][0]]
        return f"lambda block: persistent_grid({tensor}, {count('y')} * {count('x')})"
    if kernel.grid == "BatchMatmulGrid3D":
        parts = [count(c) for c in "zyx"]
    elif kernel.grid == "Grid2DWithYZOverflow":
        parts = [count("x"), f"*split({count('y')})"]
    else:
        parts = [count(c) for c in "xyz" if f"{c}numel" in launch_sides(kernel) or c == "x"]
    whole = f"({', '.join(parts)}{',' * (len(parts) == 1)})"
    return f"lambda block: {whole}" if "block[" in whole else whole


def _grid_parts(grid: str) -> tuple[str, list[str]]:
    """Returns the opening of a grid (`lambda block: (` or `(`), and the elements of its tuple."""
    node = ast.parse(grid, mode="eval").body
    whole = node.body if isinstance(node, ast.Lambda) else node
    if isinstance(whole, ast.Call):  # persistent_grid(tensor, tiles)
        parts = [
            ast.unparse(a).replace("block['", 'block["').replace("']", '"]') for a in whole.args
        ]
        return grid[: grid.index("(") + 1], parts
    assert isinstance(whole, ast.Tuple)
    parts = [ast.unparse(e).replace("block['", 'block["').replace("']", '"]') for e in whole.elts]
    return grid[: grid.index("(") + 1], parts


def launch_sides(kernel: LoweredKernel) -> list[str]:
    """Parameters with the number of elements of a side."""
    return [p for p in kernel.parameters if p.endswith("numel")]
