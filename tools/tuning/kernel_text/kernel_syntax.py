"""The Triton kernels of a file as their syntax says: constexprs and how they are used, products,
masks, loops, autotune lists.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

_BLOCK_MAKERS = {
    "zeros", "full", "broadcast_to", "reshape", "view", "make_block_ptr", "make_tensor_descriptor", "arange",
    "static_range",
}  # fmt: skip
"""Functions of Triton whose arguments are the extents of a block."""


@dataclass
class KernelSyntax:
    """Syntax of a `@triton.jit` function."""

    node: ast.FunctionDef
    autotune: ast.Call | None = None
    parameters: list[str] = field(default_factory=list)
    constexprs: list[str] = field(default_factory=list)
    tiles: set[str] = field(default_factory=set)
    """Constexprs used as the extent of a block."""
    placed: dict[str, set[int]] = field(default_factory=dict)
    """Constexprs multiplied by a program number, with the grid axes of this number."""
    dot_tiles: set[str] = field(default_factory=set)
    """Tiles of a kernel with products: at least 16."""
    dots: list[ast.Call] = field(default_factory=list)
    unmasked: bool = False
    """Whether the kernel loads or stores a block without mask and boundary check."""
    loops: bool = False
    persistent: bool = False
    """Whether a loop advances by the number of programs."""
    counted: dict[str, str] = field(default_factory=dict)
    """Parameter in `tl.cdiv(parameter, CONSTEXPR)`, by constexpr."""
    called: set[str] = field(default_factory=set)
    """Names of functions called by the kernel."""
    outside: set[str] = field(default_factory=set)
    """Extents which are no parameters, maybe constants of the module."""

    @property
    def name(self) -> str:
        """Returns the name of the function."""
        return self.node.name

    def default_of(self, parameter: str) -> ast.expr | None:
        """Returns the default value of a parameter."""
        arguments = self.node.args
        positional = [*arguments.posonlyargs, *arguments.args]
        pairs = dict(zip([a.arg for a in positional[::-1]], arguments.defaults[::-1], strict=False))
        named = zip([a.arg for a in arguments.kwonlyargs], arguments.kw_defaults, strict=True)
        pairs |= {name: value for name, value in named if value is not None}
        return pairs.get(parameter)


def kernels_of(tree: ast.Module) -> dict[str, KernelSyntax]:
    """Returns the kernels of a text by name, without kernels that share a name, between which a
    branch chooses.
    """
    kernels_by_name: dict[str, list[KernelSyntax]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any(_is(d, "jit") for d in node.decorator_list):
            kernels_by_name.setdefault(node.name, []).append(_read(node))
    kernels = {name: several[0] for name, several in kernels_by_name.items() if len(several) == 1}
    for kernel in kernels.values():
        _join_called(kernel, kernels)
    return kernels


def _join_called(kernel: KernelSyntax, kernels: dict[str, KernelSyntax]) -> None:
    """Adds products in called device functions to the kernel."""
    waiting = list(kernel.called)
    visited = {kernel.name}
    while waiting:
        name = waiting.pop()
        if name in visited or name not in kernels:
            continue
        visited.add(name)
        kernel.dots = [*kernel.dots, *(d for d in kernels[name].dots if d not in kernel.dots)]
        kernel.loops |= kernels[name].loops
        waiting += kernels[name].called
    if kernel.dots:
        kernel.dot_tiles = set(kernel.tiles)


def dotted(node: ast.expr) -> str:
    """Returns the dotted name of an expression, such as `triton.language.dot`; empty for other
    expressions.
    """
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def called_name(call: ast.expr) -> str:
    """Returns the last part of a call's name: `arange` for `tl.arange(...)`."""
    return dotted(call.func).rpartition(".")[2] if isinstance(call, ast.Call) else ""


def _is(decorator: ast.expr, name: str) -> bool:
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    return dotted(target).rpartition(".")[2] == name


def _read(node: ast.FunctionDef) -> KernelSyntax:
    kernel = KernelSyntax(node)
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    kernel.parameters = [a.arg for a in arguments]
    kernel.constexprs = [
        a.arg for a in arguments if a.annotation and dotted(a.annotation).endswith("constexpr")
    ]
    kernel.autotune = next(
        (d for d in node.decorator_list if isinstance(d, ast.Call) and _is(d, "autotune")), None
    )
    names = set(kernel.constexprs)
    blocks = _blocks(node)
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call):
            _read_call(kernel, inner, names, blocks)
        elif isinstance(inner, ast.For | ast.While):
            kernel.loops = True
            head = inner.iter if isinstance(inner, ast.For) else inner.test
            kernel.persistent |= any(
                called_name(n) == "num_programs" for n in ast.walk(head) if isinstance(n, ast.Call)
            )
    if kernel.dots:
        kernel.dot_tiles = set(kernel.tiles)
    kernel.placed = _placed(node, names)
    return kernel


def _read_call(kernel: KernelSyntax, call: ast.Call, names: set[str], blocks: set[str]) -> None:
    called = called_name(call)
    kernel.called.add(called)
    if called in _BLOCK_MAKERS:
        arguments = [*call.args, *(k.value for k in call.keywords)]
        extents = {n for a in arguments for n in _direct_names(a)}
        kernel.tiles |= extents & names
        if called == "arange":
            kernel.outside |= extents - set(kernel.parameters)
    elif called == "dot":
        kernel.dots.append(call)
    elif called == "range" and len(call.args) == 3 and isinstance(call.args[2], ast.Name):
        kernel.tiles |= {call.args[2].id} & names
    elif called in ("load", "store") and dotted(call.func).count(".") == 1 and call.args:
        keyword_names = {k.arg for k in call.keywords}
        whole = len(call.args) <= (1 if called == "load" else 2) and not keyword_names & {
            "mask",
            "boundary_check",
        }
        kernel.unmasked |= (
            whole and dotted(call.func).startswith("tl.") and _is_block(call.args[0], blocks)
        )
    elif called == "cdiv" and len(call.args) == 2:
        divided, by = call.args
        if isinstance(divided, ast.Name) and isinstance(by, ast.Name) and by.id in names:
            kernel.counted[by.id] = divided.id


def _direct_names(node: ast.expr) -> Iterator[str]:
    """Returns names used as extents: the argument itself or in a list, without names in pointer
    arithmetic.
    """
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Tuple | ast.List):
        for element in node.elts:
            yield from _direct_names(element)


def _blocks(node: ast.FunctionDef) -> set[str]:
    """Returns the names of blocks: results of `tl.arange` and of computations on them, and block
    pointers.
    """
    blocks: set[str] = set()
    for _ in range(4):
        for inner in ast.walk(node):
            if isinstance(inner, ast.Assign | ast.AugAssign) and _is_block(inner.value, blocks):
                targets = inner.targets if isinstance(inner, ast.Assign) else [inner.target]
                blocks |= {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
    return blocks


def _is_block(value: ast.expr, blocks: set[str]) -> bool:
    """Returns whether an expression is recognisably a block; a reduction to a number is not."""
    if isinstance(value, ast.Call) and called_name(value) in (
        "sum",
        "max",
        "min",
        "program_id",
        "cdiv",
    ):
        return False
    return any(
        (isinstance(inner, ast.Name) and inner.id in blocks)
        or (isinstance(inner, ast.Call) and called_name(inner) in ("arange", "make_block_ptr"))
        for inner in ast.walk(value)
    )


def _placed(node: ast.FunctionDef, names: set[str]) -> dict[str, set[int]]:
    """Returns constexprs which are multiplied by a program number, or by a name computed from
    one.
    """
    axes: dict[str, set[int]] = {}
    for _ in range(4):
        for inner in ast.walk(node):
            if isinstance(inner, ast.Assign) and (multiplied_axes := _axes_of(inner.value, axes)):
                for target in inner.targets:
                    for name in (n.id for n in ast.walk(target) if isinstance(n, ast.Name)):
                        axes[name] = axes.get(name, set()) | multiplied_axes
    placed: dict[str, set[int]] = {}
    for inner in ast.walk(node):
        if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Mult):
            for factor, other in ((inner.left, inner.right), (inner.right, inner.left)):
                if (
                    isinstance(factor, ast.Name)
                    and factor.id in names
                    and (multiplied_axes := _axes_of(other, axes))
                ):
                    placed[factor.id] = placed.get(factor.id, set()) | multiplied_axes
    return placed


def _axes_of(value: ast.expr, axes_of_names: dict[str, set[int]]) -> set[int]:
    """Returns the grid axes from which a scalar is computed; empty for a block of offsets."""
    axes: set[int] = set()
    for inner in ast.walk(value):
        if isinstance(inner, ast.Call):
            called = called_name(inner)
            if called in ("arange", "load", "range"):
                return set()
            if called == "program_id":
                arguments = [*inner.args, *(k.value for k in inner.keywords)]
                axes |= {
                    a.value
                    for a in arguments
                    if isinstance(a, ast.Constant) and type(a.value) is int
                }
        elif isinstance(inner, ast.Name):
            axes |= axes_of_names.get(inner.id, set())
    return axes
