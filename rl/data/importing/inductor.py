"""TorchInductor's output: each kernel of an `output_code.py` as a Triton function that stands alone, with the graph
that it was made from.

What Inductor wraps round a kernel (heuristics, size hints, metadata of one machine) is taken off. Good for prompts and
filling in; poor as a style to copy.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernelwright.errors import InputError
from kernelwright.rl.data.importing.formats import ImportOptions, count_skipped
from kernelwright.rl.data.rows import Kind, Row, row_of
from kernelwright.tools.parsing import parse_module

OUTPUT, GRAPH = "output_code.py", "fx_graph_readable.py"
MAX_GRAPH_CHARACTERS = 6000
"""Characters of a whole graph that stand in a prompt where Inductor did not say which part is the kernel's."""
INDUCTOR_LICENCE = "generated"
"""The licence that is noted for code that Inductor wrote for a program of ours: it belongs to nobody."""
_IMPORTS = {
    "triton_helpers": "from torch._inductor.runtime import triton_helpers",
    "libdevice": "from torch._inductor.runtime.triton_helpers import libdevice",
    "tl_math": "from torch._inductor.runtime.triton_helpers import math as tl_math",
}


@dataclass(frozen=True)
class InductorKernel:
    """One kernel of a file that Inductor has written."""

    name: str
    source: str
    graph: str
    """Lines of the graph that the kernel computes, as Inductor's comment has them; "" where there is none."""


def read(path: Path, options: ImportOptions, skipped: dict[str, int]) -> Iterator[Row]:
    """Raises InputError where there is no `output_code.py`."""
    files = [path] if path.is_file() else sorted(path.rglob(OUTPUT))
    if not files:
        raise InputError(
            f"{path} holds no {OUTPUT}: run with TORCH_COMPILE_DEBUG=1, and give its torch_compile_debug folder"
        )
    for file in files:
        whole = file.with_name(GRAPH)
        graph = whole.read_text(encoding="utf-8", errors="replace") if whole.is_file() else ""
        code = file.read_text(encoding="utf-8", errors="replace")
        place = str(file.relative_to(path)) if path.is_dir() else file.name
        yield from rows_of(code, graph, place, options.licence, skipped)


def rows_of(
    code: str, graph: str, place: str, licence: str, skipped: dict[str, int], **facts: object
) -> Iterator[Row]:
    """Makes one row of each kernel of an output_code.py."""
    try:
        found = kernels_of(code)
    except (SyntaxError, ValueError, RecursionError):
        count_skipped(skipped, "not Python")
        return
    if not found:
        count_skipped(skipped, "no Triton kernel in it")
    for kernel in found:
        shown = kernel.graph or graph.strip()[:MAX_GRAPH_CHARACTERS]
        if not shown:
            count_skipped(skipped, "no graph")
            continue
        prompt = f"Write one Triton kernel for this graph.\n{shown}"
        yield row_of(
            Kind.TRANSLATE,
            prompt,
            kernel.source,
            source="inductor",
            licence=licence,
            provenance=f"{place}: {kernel.name}",
            **facts,
        )


def kernels_of(code: str) -> list[InductorKernel]:
    """The texts given to `async_compile.triton(name, source)`, freed of their wrapping. Raises SyntaxError."""
    tree, lines = parse_module(code), code.splitlines()
    found = []
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) == "async_compile.triton"
            and len(node.args) >= 2
        ):
            texts = [
                a.value
                for a in node.args[:2]
                if isinstance(a, ast.Constant) and isinstance(a.value, str)
            ]
            if len(texts) == 2 and (source := _alone(*texts)):
                found.append(InductorKernel(texts[0], source, _comment(lines, node.lineno)))
    return found


def _alone(name: str, text: str) -> str:
    """The kernel with the functions and the imports that it needs; "" where there is none."""
    functions = {
        n.name: n for n in parse_module(text).body if isinstance(n, ast.FunctionDef) and _is_jit(n)
    }
    if not functions:
        return ""
    # With unique_kernel_names off the kernel is called triton_, and follows what it uses.
    last = next(reversed(functions))
    body = "\n\n\n".join(map(_bare, _used(functions, name if name in functions else last)))
    extra = [line for name, line in _IMPORTS.items() if re.search(rf"\b{name}\.", body)]
    return "\n".join(["import triton", "import triton.language as tl", *extra]) + f"\n\n\n{body}\n"


def _is_jit(function: ast.FunctionDef) -> bool:
    return any(ast.unparse(d) == "triton.jit" for d in function.decorator_list)


def _used(functions: dict[str, ast.FunctionDef], name: str) -> list[ast.FunctionDef]:
    """The function of that name and all that it comes to use, in the order of the text."""
    found, todo = {name}, [name]
    while todo:
        read = {n.id for n in ast.walk(functions[todo.pop()]) if isinstance(n, ast.Name)}
        new = (read & set(functions)) - found
        found |= new
        todo += new
    return [function for one, function in functions.items() if one in found]


def _bare(function: ast.FunctionDef) -> str:
    """Returns the text without Inductor's decorators."""
    function.decorator_list = [d for d in function.decorator_list if ast.unparse(d) == "triton.jit"]
    return ast.unparse(function)


def _comment(lines: list[str], number: int) -> str:
    """The graph fragment in the comment above a line (counted from 1)."""
    above = []
    for line in reversed(lines[: number - 1]):
        if not line.startswith("#"):
            break
        above.append(line.removeprefix("#").rstrip())
    above.reverse()
    start = next((i for i, line in enumerate(above) if line.strip() == "Graph fragment:"), None)
    return "" if start is None else "\n".join(line.strip() for line in above[start + 1 :])
