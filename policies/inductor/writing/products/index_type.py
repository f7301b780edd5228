"""Index type of products.

Inductor chooses 64-bit indices by the number of multiplications, so for all but the smallest
products. An index must
reach the elements of the tensors only, for which 32 bits mostly suffice.
"""

from __future__ import annotations

import ast

from kernelwright.policies.inductor.syntax import names_in

INDEX_TYPE = '''def index_type(*tensors):
    """The type of indices: of 32 bits, which are faster, where these reach every element."""
    last = max(sum((size - 1) * step for size, step in zip(x.shape, x.stride())) for x in tensors)
    return tl.int32 if last < 2**31 - 2**20 else tl.int64'''
"""Function in drafts. The last block may reach beyond the last element (masked), hence the
distance to 2**31.
"""


def use_index_type(function: ast.FunctionDef) -> bool:
    """Gives indices of 64 bits the type INDEX, a constant of the kernel, in place. Returns whether there were any."""
    casting = _Casting()
    casting.visit(function)
    if casting.wide:
        function.args.args.append(ast.arg("INDEX", ast.parse("tl.constexpr", mode="eval").body))
    ast.fix_missing_locations(function)
    return bool(casting.wide)


class _Casting(ast.NodeTransformer):
    """Replaces tl.int64 in casts of indices, and drops casts of values that have the type
    already.
    """

    def __init__(self) -> None:
        self.position_names: set[str] = set()
        """Names of arithmetic of the numbers of programs, such as the tile of a program in a group."""
        self.wide: set[str] = set()
        """Names of values of type INDEX."""

    def visit_Assign(self, node: ast.Assign) -> ast.Assign:
        named = names_in(*node.targets)
        is_position = _is_place(node.value, self.position_names)
        self.generic_visit(node)
        if is_position:
            self.position_names |= named
            if "INDEX" in _names(node.value) or _names(node.value) & self.wide:
                self.wide |= named
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        cast = isinstance(node.func, ast.Attribute) and node.func.attr == "to"
        if not (
            cast
            and isinstance(node.func, ast.Attribute)
            and [ast.unparse(a) for a in node.args] == ["tl.int64"]
        ):
            return node
        if not _is_place(node.func.value, self.position_names):
            return node
        if _names(node.func.value) & self.wide:
            return node.func.value
        node.args = [ast.Name("INDEX", ast.Load())]
        return node


def _names(node: ast.AST) -> set[str]:
    return names_in(node)


def _is_place(node: ast.expr, position_names: set[str]) -> bool:
    """Returns whether an expression computes with positions of programs or elements, and loads
    nothing.
    """
    calls = {ast.unparse(n.func) for n in ast.walk(node) if isinstance(n, ast.Call)}
    return not calls & {"tl.load", "tl.dot"} and bool(
        calls & {"tl.program_id", "tl.arange"} or _names(node) & position_names
    )
