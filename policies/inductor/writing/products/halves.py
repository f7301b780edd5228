"""Products of fp32 operands as three products of their bf16 halves (bf16x3: Henry, Tang and Heinecke 2019,
arXiv:1904.06376), with the halves made once for the whole product.

`input_precision="bf16x3"` makes them again in every program, out of registers; halves that lie in memory go from there
to the tensor cores without passing through registers. That pays where each element is used by many programs.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kernelwright.policies.inductor.writing.kernels import Kernel
from kernelwright.policies.inductor.writing.plain import assignments, bodies, drop_unused

LEAST_USES = 256
"""rows * columns / (rows + columns) of a product from which on writing the halves costs less than it saves."""
LEAST_DEPTH = 1024
"""Products that are added into one number from which on bf16x3 is about as precise as fp32, whose own error grows with
the root of their number; fewer are made of three of tf32 (tf32x3). So are convolutions, whose outputs of one channel
can all be near zero.
"""

HALVES_KERNEL = """# Covers the halves of a product's operands.
@triton.jit
def halves_kernel(tensor_pointer, high_pointer, low_pointer, elements, ELEMENT_BLOCK: tl.constexpr):
    element = tl.program_id(0).to(tl.int64) * ELEMENT_BLOCK + tl.arange(0, ELEMENT_BLOCK)
    element_exists = element < elements
    value = tl.load(tensor_pointer + element, element_exists)
    infinite = tl.abs(value) == float("inf")  # its products with both halves of a number have one sign
    high = tl.where(infinite, tl.where(value > 0.0, 1.0, -1.0), value).to(tl.bfloat16)
    low = tl.where(infinite, value, value - high.to(tl.float32)).to(tl.bfloat16)
    tl.store(high_pointer + element, high, element_exists)
    tl.store(low_pointer + element, low, element_exists)"""

HALVES = '''def halves(tensor):
    """An fp32 tensor as the sum of two of bf16, in the order of its memory."""
    elements = tensor.numel()
    high = torch.empty((elements,), device=tensor.device, dtype=torch.bfloat16)
    low = torch.empty((elements,), device=tensor.device, dtype=torch.bfloat16)
    halves_kernel[lambda block: (triton.cdiv(elements, block["ELEMENT_BLOCK"]),)](
        tensor, high, low, elements, ELEMENT_BLOCK=2048, num_warps=8,
    )
    return high, low'''


@dataclass
class Halved:
    """Which parameters of a kernel are passed as halves."""

    parameters: dict[str, str] = field(default_factory=dict)
    """A pointer's name -> the start of its halves' names: `x_pointer` -> `x`."""


def worth_halving(kernel: Kernel) -> bool:
    """Whether a product is large enough, at the problem's own sizes, and reads whole rows: patches are gathered element
    by element, and half an element is too small to be copied without registers.
    """
    if kernel.convolves:
        return False
    rows, columns, depth = (kernel.hints.get(side, 1) for side in ("Y", "X", "R0"))
    return kernel.dot and rows * columns >= LEAST_USES * (rows + columns) and depth >= LEAST_DEPTH


def halve(function: ast.FunctionDef, dense: Mapping[str, bool]) -> dict[str, tuple[str, str]]:
    """Rewrites a kernel, in place, whose only product is of two operands that are loaded and nothing else.

    dense: of each pointer whether it is known to lead to fp32 without gaps. Returns pointer -> its halves' pointers;
    empty, with the kernel as it was, where the kernel has another form.
    """
    made = copy.deepcopy(function)
    found = _Product.find(made)
    if found is None:
        return {}
    pointers = [_pointer_of(load, dense) for load in found.loads]
    if not all(pointers):
        return {}
    halves = {p: (f"{_stem(p)}_high_pointer", f"{_stem(p)}_low_pointer") for p in pointers if p is not None}
    taken = {a.arg for a in made.args.args} | {name for name, _ in assignments(made)}
    if taken & {name for pair in halves.values() for name in pair}:
        return {}
    found.rewrite(pointers, halves)
    drop_unused(made)
    _pass_halves(made, halves)
    function.body, function.args = ast.fix_missing_locations(made).body, made.args
    return halves


def _stem(pointer: str) -> str:
    return pointer.removesuffix("_pointer")


def _pointer_of(load: ast.Call, dense: Mapping[str, bool]) -> str | None:
    """The only pointer that a load reads from; None where it may not be halved."""
    names = {n.id for n in ast.walk(load.args[0]) if isinstance(n, ast.Name) and n.id in dense}
    return names.pop() if len(names) == 1 and all(dense[n] for n in names) else None


@dataclass
class _Product:
    """`sum += tl.dot(left, right)` in a loop."""

    function: ast.FunctionDef
    body: list[ast.stmt]
    dot: ast.Assign
    add: ast.AugAssign
    operands: list[str]
    loads: list[ast.Call]

    @classmethod
    def find(cls, function: ast.FunctionDef) -> _Product | None:
        """The only one of a kernel, where it has this form."""
        dots = [n for n in ast.walk(function) if isinstance(n, ast.Call) and ast.unparse(n.func) == "tl.dot"]
        defined = dict(assignments(function))
        if len(dots) != 1 or len(dots[0].args) != 2 or not all(isinstance(a, ast.Name) for a in dots[0].args):
            return None
        operands = [ast.unparse(a) for a in dots[0].args]
        loads = [defined.get(name) for name in operands]
        if not all(isinstance(one, ast.Call) and ast.unparse(one.func) == "tl.load" for one in loads):
            return None
        for body in bodies(function):
            made = next((s for s in body if isinstance(s, ast.Assign) and s.value is dots[0]), None)
            added = next((s for s in body if isinstance(s, ast.AugAssign) and made is not None
                          and ast.unparse(s.value) == ast.unparse(made.targets[0])), None)  # fmt: skip
            if made is not None and added is not None and isinstance(added.op, ast.Add):
                return cls(function, body, made, added, operands, [one for one in loads if isinstance(one, ast.Call)])
        return None

    def rewrite(self, pointers: list[str | None], halves: Mapping[str, tuple[str, str]]) -> None:
        """Four loads and three products take the place of two loads and one; the product of both low halves is below
        what fp32 keeps."""
        lines: list[str] = []
        for operand, load, pointer in zip(self.operands, self.loads, pointers, strict=True):
            assert pointer is not None
            for half, name in zip(("high", "low"), halves[pointer], strict=True):
                text = re.sub(rf"\b{pointer}\b", name, ast.unparse(load))
                lines.append(f"{operand}_{half} = {text}")
        total, (left, right) = ast.unparse(self.add.target), self.operands
        for one, other in ((f"{left}_low", f"{right}_high"), (f"{left}_high", f"{right}_low"),
                           (f"{left}_high", f"{right}_high")):  # fmt: skip
            lines.append(f"{total} = tl.dot({one}, {other}, {total})")
        place = self.body.index(self.dot)
        self.body[place : place + 1] = ast.parse("\n".join(lines)).body
        self.body.remove(self.add)


def _pass_halves(function: ast.FunctionDef, halves: Mapping[str, tuple[str, str]]) -> None:
    """The parameters for the halves in the place of the pointer, which stays where something else reads it."""
    read = {n.id for n in ast.walk(ast.Module(function.body, [])) if isinstance(n, ast.Name)}
    kept: list[ast.arg] = []
    for argument in function.args.args:
        if argument.arg in halves:
            kept += [ast.arg(name) for name in halves[argument.arg]]
        if argument.arg not in halves or argument.arg in read:
            kept.append(argument)
    function.args.args = kept
