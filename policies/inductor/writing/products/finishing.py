"""What a draft's products are made of, and in which order its programs take their tiles."""

from __future__ import annotations

import ast
import copy
import re
from dataclasses import dataclass, field

from kernelwright.policies.inductor.tracing.graph import Traced, simple_path
from kernelwright.policies.inductor.writing.kernels import Kernel
from kernelwright.policies.inductor.writing.launch import Host, Launch
from kernelwright.policies.inductor.writing.products.halves import halve, worth_halving

ROWS = "tl.program_id(1) + tl.program_id(2) * tl.num_programs(1)"
"""The number of a program's tile of rows, as Inductor writes it where one axis of a grid may not be enough."""
GROUPED = """row_tile, column_tile = tl.swizzle2d(
    tl.program_id(1), tl.program_id(0), tl.num_programs(1), tl.num_programs(0), GROUP)"""
"""Groups of tiles that share their operands in the L2 cache (triton.language.swizzle2d)."""


@dataclass
class Products:
    """The products of one draft."""

    precise: bool
    """fp32 operands are multiplied in fp32, and not in parts."""
    halves: bool = False
    """Large products may be made of halves that lie in memory."""
    dense: set[str] = field(default_factory=set)
    """Host expressions of tensors of fp32 whose elements lie side by side."""
    taken: set[str] = field(default_factory=set)
    """Names in forward."""
    single: bool = True
    """Every floating-point tensor is fp32."""

    @classmethod
    def of(cls, traced: Traced, host: Host, taken: set[str], precise: bool, halves: bool) -> Products:
        """Of a draft whose launches are known and not yet written."""
        given = {path: value for path, value in zip(traced.arguments, traced.flat, strict=True)
                 if hasattr(value, "is_floating_point")}  # fmt: skip
        single = all(str(v.dtype) == "torch.float32" for v in given.values() if v.is_floating_point())
        kept = {p for p, v in given.items() if str(v.dtype) == "torch.float32"
                and (p in traced.contiguous or p.startswith("self."))}  # fmt: skip
        made = set()
        for step in host.steps:
            text = ast.unparse(step) if isinstance(step, ast.stmt) else ""
            if found := re.fullmatch(r"(\w+) = torch\.empty\(.*dtype=torch\.float32\)", text):
                made.add(found[1])
        return cls(precise, halves, kept | made, taken, single)

    def finish(self, kernel: Kernel, launches: list[Launch], function: ast.FunctionDef, kept: list[str]) -> list[str]:
        """Rewrites a kernel that multiplies, in place, and says what its launches pass.

        kept: Inductor's names of the kernel's parameters. Returns them with the halves of operands in the place of the
        operands.
        """
        old_of = dict(zip([a.arg for a in function.args.args], kept, strict=True))
        kernel.single = self.single
        if kernel.grid == "Grid2DWithYZOverflow":
            kernel.grouped = _group(function)
        if self.precise or not self.single:
            return kept
        if self.halves and len(launches) == 1 and launches[0].outermost and worth_halving(kernel):
            dense = {new: launches[0].given[old] in self.dense for new, old in old_of.items() if "ptr" in old}
            short = copy.deepcopy(function)
            if halves := halve(function, dense):
                kernel.halved, kernel.short = True, _in_parts(short)
                return self._pass(launches[0], function, old_of, halves)
        kernel.parted = True
        _in_parts(function)
        return kept

    def _pass(
        self, launch: Launch, function: ast.FunctionDef, old_of: dict[str, str], halves: dict[str, tuple[str, str]]
    ) -> list[str]:
        """Inductor's names of the parameters, and for halves their own, whose values the launch then has."""
        for pointer, pair in halves.items():
            tensor = launch.given[old_of[pointer]]
            if tensor not in launch.halves:
                stem = self._stem(tensor)
                launch.halves[tensor] = f"{stem}_high", f"{stem}_low"
            for name, value in zip(pair, launch.halves[tensor], strict=True):
                old_of[name] = name
                launch.given[name] = value
        return [old_of[a.arg] for a in function.args.args if a.arg in old_of]

    def _stem(self, tensor: str) -> str:
        base = simple_path(tensor)
        made, number = base, 2
        while self.taken & {f"{made}_high", f"{made}_low"}:
            made, number = f"{base}_{number}", number + 1
        self.taken |= {f"{made}_high", f"{made}_low"}
        return made


def _in_parts(function: ast.FunctionDef) -> ast.FunctionDef:
    """The kernel, changed in place, with three products of tf32 for each of fp32: precise at every size."""
    for node in ast.walk(function):
        if isinstance(node, ast.keyword) and node.arg == "input_precision":
            node.value = ast.Constant("tf32x3")
    return function


def _group(function: ast.FunctionDef) -> bool:
    """Lets programs that run at once take tiles near each other, where the kernel has one tile a program.

    Returns whether it was done.
    """
    text = [ast.unparse(s) for s in function.body]
    whole = "\n".join(text)
    if whole.count(ROWS) != 1 or whole.count("tl.program_id(0)") != 1 or whole.count("tl.program_id(") != 3:
        return False
    if {"row_tile", "column_tile", "GROUP"} & {n.id for n in ast.walk(function) if isinstance(n, ast.Name)}:
        return False
    more = ROWS.replace("tl.program_id(1)", "row_tile")
    tree = ast.parse(whole.replace(ROWS, more).replace("tl.program_id(0)", "column_tile"))
    function.body = [*ast.parse(GROUPED).body, *tree.body]
    function.args.args.append(ast.arg("GROUP", ast.parse("tl.constexpr", mode="eval").body))
    return True
