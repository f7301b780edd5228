"""Writes loops over a size in the candidate's text.

`LoopReading` reads the operator that stands for a loop in Inductor's text; `host_lines` writes
the `for` statement.

In (Inductor's `call`, for loop 0, which carries `h` and stacks `outputs`):

    buf2 = torch.ops.kernelwright.steps.default([buf0], [buf1], s0, 0)
    buf3 = buf2[0]
    buf4 = buf2[1]

Out (lines of `ModelNew.forward`):

    outputs = torch.empty((length, batch, width), device=device, dtype=torch.float32)
    h = start.clone(memory_format=torch.contiguous_format)
    h_next = torch.empty_like(h)
    for time_step in range(length):
        add_tanh_kernel[grid](h, inputs, h_next, outputs[time_step], ...)
        h, h_next = h_next, h
    return outputs

`buf3` is then `h` and `buf4` is `outputs`. Each step reads `h`, writes `h_next`, and the two
names are swapped, so that
no step overwrites a tensor that it reads. Allocations and views that are equal in all steps are
moved before the loop.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from kernelwright.policies.inductor.lowering.generating import GeneratedCode
from kernelwright.policies.inductor.syntax import names_assigned, names_in, unique_name
from kernelwright.policies.inductor.tracing.graph import TracedModel
from kernelwright.policies.inductor.writing.kernel_text import WrittenKernel
from kernelwright.policies.inductor.writing.kernels import LoweredKernel
from kernelwright.policies.inductor.writing.launch import Host, Loop, WrittenLaunch
from kernelwright.policies.inductor.writing.launches import launch_lines, read_call


class LoopReading:
    """Reads the operator of a loop and the text of its step, and gives all of it names that are unique in forward."""

    def __init__(
        self,
        traced: TracedModel,
        generated: GeneratedCode,
        kernels: dict[str, LoweredKernel],
        names: dict[str, str],
        used_names: set[str],
    ) -> None:
        """names: symbol -> its name in forward. used_names: existing names, to which those of loops
        are added.
        """
        assert traced.loops is not None
        self._bodies, self._texts = traced.loops.bodies, generated.bodies
        self._kernels, self._names, self._used_names = kernels, names, used_names

    def __call__(self, call: ast.Call) -> tuple[Loop, list[str]]:
        """Returns the loop of an operator call, and the names of its results."""
        # 1. Read the operator: steps(carried tensors, tensors read, count, number of the loop).
        carried, read_tensors, count, loop_number = call.args
        assert isinstance(carried, ast.List)
        assert isinstance(read_tensors, ast.List)
        number = int(ast.unparse(loop_number))
        body = self._bodies[number]
        # 2. Choose names in forward that no other variable has.
        step = self._unique("time_step")
        names = [self._unique(n) for n in body.carried]
        ahead = [self._unique(f"{n}_next") for n in names]
        rows = [self._unique(n) for n in body.stacked]
        # 3. The steps may read expressions (views); each of these gets a name before the loop.
        read: list[str] = []
        aliases: dict[str, str] = {}
        for value in map(ast.unparse, read_tensors.elts):
            if not re.fullmatch(r"[\w.\[\]]+", value):
                aliases[alias := self._unique("read")] = value
                value = alias
            read.append(value)
        # 4. Symbols of the step: its own number, and the sizes that its graph takes as arguments.
        symbols = self._names = self._names | {str(body.step.node.expr): step}
        sizes = [symbols.get(str(v.node.expr), str(v.node.expr)) for v in body.sizes]
        row_slots = [f"{row}[{step}]" for row in rows]
        # 5. The step's graph takes its arguments in the order of LoopBody.flat.
        arguments = [step, *sizes, *names, *ahead, *row_slots, *read]
        host = read_call(self._texts[number], self._kernels, arguments, symbols, self, {})
        # 6. Allocate each stacked tensor with a leading axis for the steps.
        filled: dict[str, str] = {}
        for row, (shape, dtype) in zip(rows, body.shapes, strict=True):
            filled[row] = self._allocation(ast.unparse(count), shape, dtype, symbols)
        first = dict(zip(names, map(ast.unparse, carried.elts), strict=True))
        return Loop(ast.unparse(count), step, first, filled, aliases, host), [*names, *rows]

    def _unique(self, name: str) -> str:
        return unique_name(name, self._used_names)

    def _allocation(
        self, count: str, shape: list[object], dtype: object, symbols: Mapping[str, str]
    ) -> str:
        sizes = [re.sub(r"\b[a-z]+\d+\b", lambda m: symbols.get(m[0], m[0]), str(n)) for n in shape]
        extents = ", ".join([count, *sizes]) + "," * (not sizes)
        return f"torch.empty(({extents}), device=device, dtype={dtype})"


def host_lines(host: Host, written: Mapping[str, WrittenKernel]) -> list[str]:
    """Returns the lines of forward."""
    lines: list[str] = []
    for step in host.steps:
        if isinstance(step, WrittenLaunch):
            lines += launch_lines(step, written[step.kernel.original])
        elif isinstance(step, Loop):
            lines += _loop_lines(step, written)
        else:
            lines.append(ast.unparse(step))
    return lines


def _loop_lines(loop: Loop, written: Mapping[str, WrittenKernel]) -> list[str]:
    lines = [f"{name} = {value}" for name, value in [*loop.aliases.items(), *loop.rows.items()]]
    # Carried tensors are copied: a step writes into them, and the caller keeps its own.
    for name, value in loop.first.items():
        lines += [f"{name} = {value}.clone(memory_format=torch.contiguous_format)",
                  f"{name}_next = torch.empty_like({name})"]  # fmt: skip
    # Work that is equal in all steps moves before the loop.
    before, inside = _invariant_first(loop, host_lines(loop.host, written))
    lines += [*before, f"for {loop.step} in range({loop.count}):"]
    if loop.first:
        # Swap names after each step: `h, h_next = h_next, h`.
        left: list[str] = []
        right: list[str] = []
        for name in loop.first:
            left += [name, f"{name}_next"]
            right += [f"{name}_next", name]
        inside.append(f"{', '.join(left)} = {', '.join(right)}")
    return lines + [f"    {line}" for line in inside]


def _invariant_first(loop: Loop, lines: list[str]) -> tuple[list[str], list[str]]:
    """Splits a loop body into lines before the loop and lines inside.

    Moved before the loop: allocations of scratch memory that each step fills, and views of
    unchanged tensors.
    """
    source = "\n".join(lines)
    body = ast.parse(source).body
    stored = names_assigned(*body)
    # Names with a different value in each step.
    changing = stored | {loop.step}
    for name in loop.first:
        changing |= {name, f"{name}_next"}
    views = _Views(loop.step, changing)
    # Memory that another statement reads may outlive the step, and must stay new in each step.
    handed_on: set[str] = set()
    for statement in body:
        if isinstance(statement, ast.Assign):
            handed_on |= names_in(statement.value)
    before: list[str] = []
    inside: list[str] = []
    for statement in body:
        text, plain = ast.get_source_segment(source, statement) or "", ast.unparse(statement)
        allocated = _new_memory(statement, changing)
        if allocated is not None and allocated not in handed_on:
            before.append(text)
            continue
        changed = ast.unparse(views.visit(statement))
        inside.append(text if changed == plain else changed)
    before += [f"{name} = {view}" for view, name in views.names.items()]
    return before, [line for text in inside for line in text.splitlines()]


def _new_memory(statement: ast.stmt, changing: set[str]) -> str | None:
    """Returns the name of an allocation that is equal in every step; None for other statements."""
    if not (isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call)):
        return None
    target, call = statement.targets[0], statement.value
    if ast.unparse(call.func) not in ("torch.empty", "torch.empty_strided") or not isinstance(
        target, ast.Name
    ):
        return None
    return None if changing & names_in(call) else target.id


class _Views(ast.NodeTransformer):
    """Names views unchanged by all steps."""

    def __init__(self, step: str, changing: set[str]) -> None:
        self._step, self._changing = step, changing
        self.names: dict[str, str] = {}
        """Text of a view -> its name."""

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Rewrites `torch.as_strided` of an unchanged tensor."""
        held = names_in(node)
        if ast.unparse(node.func) != "torch.as_strided" or self._changing & held:
            self.generic_visit(node)
            return node
        name = self.names.setdefault(
            ast.unparse(node), f"fixed_view_{len(self.names) + 1}_of_{self._step}"
        )
        return ast.Name(name, ast.Load())
