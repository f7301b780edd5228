"""In which order the programs of a draft's products take their tiles."""

from __future__ import annotations

import ast

from kernelwright.policies.inductor.syntax import names_in

ROW_PROGRAM = "tl.program_id(1) + tl.program_id(2) * tl.num_programs(1)"
"""Index of a program's tile of rows, as written by Inductor for grids that may exceed an axis."""
GROUPED = """row_tile, column_tile = tl.swizzle2d(
    tl.program_id(1), tl.program_id(0), tl.num_programs(1), tl.num_programs(0), GROUP)"""
"""Groups of tiles that share their operands in the L2 cache (triton.language.swizzle2d)."""


def group_tiles(function: ast.FunctionDef) -> bool:
    """Lets concurrent programs take neighbouring tiles, in a kernel with one tile per program.

    Returns whether the kernel was changed.
    """
    text = [ast.unparse(s) for s in function.body]
    whole = "\n".join(text)
    of_columns = whole.count("tl.program_id(0)")
    if (
        whole.count(ROW_PROGRAM) != 1
        or not of_columns
        or whole.count("tl.program_id(") != of_columns + 2
    ):
        return False
    if {"row_tile", "column_tile", "GROUP"} & names_in(function):
        return False
    row_tile_text = ROW_PROGRAM.replace("tl.program_id(1)", "row_tile")
    tree = ast.parse(
        whole.replace(ROW_PROGRAM, row_tile_text).replace("tl.program_id(0)", "column_tile")
    )
    function.body = [*ast.parse(GROUPED).body, *tree.body]
    function.args.args.append(ast.arg("GROUP", ast.parse("tl.constexpr", mode="eval").body))
    return True
