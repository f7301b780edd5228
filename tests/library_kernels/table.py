"""Pairs of a problem and a candidate that calls a kernel of an installed library, made from rows of text.

A row is one line of a library's file in this folder, six fields at most, separated by ` | `:

    name | what the candidate's forward returns | what the reference's forward returns | inputs | options

`.` stands for the usual thing: the library's function, torch's function of the same name, one matrix `x`. An empty
field at the end may be left out. A forward of several statements separates them by `; ` and returns the last one.
Inputs are `x=randn(rows, columns), y=...`: the functions of torch go without
`torch.`, and names of sizes become module-level integers of the problem. Options are separated by `; `:

    own=share:0.5                   own-work mode of the verdict; strict where it is not said
    needs=gpu                       it cannot be interpreted on a CPU, or its library does not import there
    dtype=float16                   of all inputs and parameters that are drawn by randn or rand
    rows=4096/5                     a size in full and on a CPU; SIZES has those that are not said
    if=columns % 2 == 0             sizes at which the library's function is defined; the reference raises ValueError
    elsewhere parameters=weight=randn(columns)                of both modules, `self.weight` in both forwards
    init=columns                    arguments of both modules, which `parameters` may use module=self.norm =
    Norm(columns)                in the candidate's __init__ instead of its parameters triton=3.6
    the newest Triton that the library's kernel runs with left=what is wrong with it      the row is left out, and this
    says why

Functions of references.py that a reference names are copied into its problem. Names that a candidate uses are imported
by its library's `imports`.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import NamedTuple

from kernelwright.tools.problem import Problem
from tests.library_kernels import references

SIZES: dict[str, tuple[int, int]] = {
    "rows": (4096, 5),
    "columns": (4097, 67),
    "inner": (2048, 35),
    "batch": (16, 2),
    "channels": (64, 6),
    "height": (128, 11),
    "width": (129, 9),
    "length": (2048, 33),
    "heads": (16, 3),
    "dim": (64, 16),
    "hidden": (4096, 70),
    "vocabulary": (32000, 131),
    "experts": (128, 16),
    "size": (1 << 22, 1031),
}
"""Name -> full size, size on a CPU."""
FACTORIES = ("randn", "rand", "randint", "arange", "ones", "zeros", "randperm", "full")
HALVED = ("randn", "rand")
"""Factories whose tensors take the row's dtype."""


class Library(NamedTuple):
    """One installed package, and where the names that its candidates use come from."""

    name: str
    """What `--allow-import` is given."""
    distribution: str
    version: str
    preamble: str = ""
    """Lines of a candidate before its other imports."""
    imports: Mapping[str, str] = {}
    """Name -> the module it is imported from; a module's own name -> empty."""


class LibraryKernel(NamedTuple):
    """One candidate that calls a library, and the reference that it is held against."""

    library: Library
    name: str
    candidate: str
    reference: str
    inputs: tuple[tuple[str, str], ...]
    sizes: dict[str, tuple[int, int]]
    own_work: str = "strict"
    needs: str = "cpu"
    condition: str = ""
    parameters: tuple[tuple[str, str], ...] = ()
    init: tuple[str, ...] = ()
    module: str = ""
    triton: str = ""
    left_out: str = ""
    """Why it is no honest kernel: what the library's function gets wrong."""

    @property
    def title(self) -> str:
        return f"{self.library.name}.{self.name}"

    @property
    def allow_import(self) -> tuple[str, ...]:
        return (self.library.name,)

    @property
    def problem(self) -> Problem:
        return Problem(name=self.title, source=problem_text(self), suite="file")

    @property
    def source(self) -> str:
        """The candidate's text."""
        return candidate_text(self)


def rows(library: Library, text: str, defaults: str = "") -> list[LibraryKernel]:
    """The rows of a table.

    `defaults` are options of every row, before its own. Raises ValueError where a line is no row.
    """
    lines = [line.strip() for line in text.strip().splitlines()]
    return [_row(library, line, defaults) for line in lines if line and not line.startswith("#")]


def _row(library: Library, line: str, defaults: str) -> LibraryKernel:
    fields = [field.strip() for field in line.split(" | ")]
    if len(fields) > 5:
        raise ValueError(f"a row has at most five fields, not {len(fields)}: {line}")
    name, candidate, reference, inputs, options = fields + [".", ".", ".", ""][len(fields) - 1 :]
    drawn = _assignments("x=randn(rows, columns)" if inputs == "." else inputs)
    given = _options(f"{defaults}; {options}")
    dtype = given.pop("dtype", "")
    arguments = ", ".join(n for n, _ in drawn)
    described = {
        "candidate": f"{library.name}.{name}({arguments})" if candidate == "." else candidate,
        "reference": f"torch.{name}({arguments})" if reference == "." else reference,
        "inputs": tuple((n, _of_torch(value, dtype)) for n, value in drawn),
        "parameters": tuple(
            (n, _of_torch(v, dtype)) for n, v in _assignments(given.pop("parameters", ""))
        ),
        "init": tuple(re.findall(r"\w+", given.pop("init", ""))),
        "own_work": given.pop("own", "strict"),
        "needs": given.pop("needs", "cpu"),
        "condition": given.pop("if", ""),
        "module": given.pop("module", ""),
        "triton": given.pop("triton", ""),
        "left_out": given.pop("left", ""),
    }
    sizes = _sizes(" ".join(v for _, v in described["inputs"]) + " ".join(described["init"]), given)
    return LibraryKernel(library=library, name=name, sizes=sizes, **described)  # type: ignore[arg-type]


def _options(text: str) -> dict[str, str]:
    """`key=value; key=value`, later ones over earlier ones."""
    return {
        key.strip(): value.strip()
        for key, _, value in (part.partition("=") for part in text.split("; "))
        if key.strip()
    }


def _assignments(text: str) -> list[tuple[str, str]]:
    """`x=randn(rows, columns), y=rand(rows)` as (name, expression) pairs, in order."""
    call = ast.parse(f"f({text})", mode="eval").body
    assert isinstance(call, ast.Call)
    return [(str(keyword.arg), ast.unparse(keyword.value)) for keyword in call.keywords]


def _of_torch(expression: str, dtype: str) -> str:
    """The expression with `torch.`

    before torch's factories, in `dtype` where it is drawn from a continuous distribution.
    """
    written = re.sub(rf"(?<![\w.])({'|'.join(FACTORIES)})\(", r"torch.\1(", expression)
    halved = (
        dtype
        and re.search(rf"torch\.({'|'.join(HALVED)})\(", written)
        and not re.search(r"\.to\(|[<>]", written)
    )
    return f"({written}).to(torch.{dtype})" if halved else written


def _sizes(used: str, given: Mapping[str, str]) -> dict[str, tuple[int, int]]:
    """Sizes by name in the order of SIZES, then the row's own.

    Raises ValueError for an option that is neither known nor a size.
    """
    own = {}
    for key, value in given.items():
        match = re.fullmatch(r"(\d+)/(\d+)", value)
        if not match:
            raise ValueError(f"no option and no size: {key}={value}")
        own[key] = (int(match[1]), int(match[2]))
    names = set(re.findall(r"\b[a-z_]+\b", used))
    return {name: own.get(name, pair) for name, pair in {**SIZES, **own}.items() if name in names}


def problem_text(kernel: LibraryKernel) -> str:
    """The reference in KernelBench form."""
    sizes = [f"{name} = {full}" for name, (full, _) in kernel.sizes.items()]
    small = {name: cpu for name, (_, cpu) in kernel.sizes.items()}
    helpers = list(_helpers(kernel.reference))
    lines = [
        f'"""{kernel.title}: {_one_line(kernel.reference)}"""',
        "",
        *HEADER,
        "",
        *sizes,
        "",
        f"CPU_SIZES = {small}",
    ]
    lines += [line for helper in helpers for line in ("", "", helper)]
    lines += ["", "", *_module("Model", kernel, kernel.reference, _parameters(kernel)), ""]
    condition = [
        f"    if not ({kernel.condition}):",
        '        raise ValueError("the kernel is not defined at these sizes")',
    ]
    lines += ["", "def get_inputs():", *(condition if kernel.condition else [])]
    lines += [f"    return [{', '.join(value for _, value in kernel.inputs)}]"]
    lines += ["", "", "def get_init_inputs():", f"    return [{', '.join(kernel.init)}]", ""]
    return "\n".join(lines)


HEADER = (
    "import math",
    "",
    "import torch",
    "from torch import nn",
    "from torch.nn import functional",
)


def candidate_text(kernel: LibraryKernel) -> str:
    """The candidate: our own text, which imports the library and copies nothing of it."""
    library = kernel.library
    used = set(re.findall(r"(?<![\w.])[A-Za-z_]\w*", f"{kernel.candidate} {kernel.module}"))
    standard = ["import math"] if "math" in used else []
    standard += ["from torch.nn import functional"] if "functional" in used else []
    imports = [
        f"from {place} import {name}" if place else f"import {name}"
        for name, place in library.imports.items()
        if name in used
    ]
    inside = [kernel.module] if kernel.module else _parameters(kernel)
    head = [
        f"# library: {library.name}",
        *standard,
        *library.preamble.splitlines(),
        "import torch",
        "from torch import nn",
        *imports,
    ]
    return "\n".join([*head, "", "", *_module("ModelNew", kernel, kernel.candidate, inside), ""])


def _module(name: str, kernel: LibraryKernel, forward: str, inside: list[str]) -> list[str]:
    """The lines of a module with an `__init__` where it has arguments or parameters."""
    lines = [f"class {name}(nn.Module):"]
    if inside or kernel.init:
        made = ["super().__init__()", *inside]
        lines += [
            f"    def __init__({', '.join(('self', *kernel.init))}):",
            *(f"        {line}" for line in made),
            "",
        ]
    *before, last = [statement.strip() for statement in forward.split("; ")]
    lines += [f"    def forward({', '.join(('self', *(n for n, _ in kernel.inputs)))}):"]
    return [*lines, *(f"        {statement}" for statement in before), f"        return {last}"]


def _parameters(kernel: LibraryKernel) -> list[str]:
    return [f"self.{name} = nn.Parameter({value})" for name, value in kernel.parameters]


def _helpers(text: str, module: ModuleType = references) -> Iterator[str]:
    """The text of the functions of references.py that an expression names, and of those that they name, each once
    and before its users.
    """
    found: dict[str, str] = {}

    def visit(words: str) -> None:
        for name in re.findall(r"[a-z_]\w*", words):
            function = getattr(module, name, None)
            if name not in found and inspect.isfunction(function):
                found[name] = ""
                text = inspect.getsource(function).rstrip()
                visit(text)
                del found[name]
                found[name] = text

    visit(text)
    yield from found.values()


def _one_line(text: str) -> str:
    return " ".join(text.split())[:90]
