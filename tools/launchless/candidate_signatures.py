"""Signatures to try a kernel with, the likeliest first. Nothing of its text is run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from kernelwright.tools.launchless.addresses import ModuleFunction
from kernelwright.tools.launchless.module_functions import Module, returns_value
from kernelwright.tools.report import Value

_FLAG = re.compile(
    r"^(is|has|use|do|with|add|apply|even|store|return|compute|enable|need|causal|reverse|trans)(_|$)|_?flag", re.I
)
_DTYPE = re.compile(r"dtype|_type$|_ty$", re.I)
_FRACTION = re.compile(
    r"(?:^|_)eps(?:$|_|ilon)|scale|alpha|beta|gamma|^lr$|learning_rate|momentum|decay|slope|softcap|temperature"
    r"|dropout|^p$|prob|inv_",
    re.I,
)
_WHOLE = re.compile(r"^n_|^num|stride|size|seed|len|numel|idx|index|offset|rows?$|cols?$|(?-i:^[A-Znmk]$)", re.I)
_SCALAR = re.compile(f"{_FRACTION.pattern}|{_WHOLE.pattern}|pid|offset".replace("|(?-i:^[A-Znmk]$)", ""), re.I)
"""Parameters of a function that gives something back, and are no blocks."""
_SMALL = {"num_warps": 4, "num_stages": 2, "stages": 2, "group": 8, "split": 2, "vec": 4, "unroll": 2}


class SignatureGuess(Value):
    """One combination of the choices that a kernel's text leaves open."""

    block: tuple[int, ...] = ()
    """Shape of the blocks that a function which returns a value is called with; empty for a kernel."""

    flags: bool = True
    small: bool = False
    element: str = "fp32"
    index: str = "i32"
    chosen: int = 0
    """Index of the chosen value among the constants that a parameter is compared with."""


FUNCTION_GUESSES = (
    SignatureGuess(block=(128,)),
    SignatureGuess(block=(32, 32), flags=False, chosen=1),
    SignatureGuess(),
    SignatureGuess(block=(128,), element="i32"),
)
"""Ways to call functions that give something back."""
KERNEL_GUESSES = (
    SignatureGuess(),
    SignatureGuess(flags=False, chosen=1),
    SignatureGuess(small=True, element="fp16", index="i64"),
    SignatureGuess(small=True, flags=False, chosen=2),
    SignatureGuess(element="i32"),
)


class AssumedSignature(Value):
    """One assumed signature of a kernel, whose fields are JSON values."""

    types: dict[str, str] = {}
    """`*fp32`, `i32`, `fp32` by parameter."""
    constants: dict[str, Any] = {}
    """Constexprs; a type of Triton's stands as {"dtype": "float32"}."""
    tuned: bool = True
    """Whether the values of an autotune's first config override `constants`."""
    block: tuple[int, ...] = ()
    loaded: tuple[str, ...] = ()
    """Parameters that are given such a block, loaded from where `types` points."""

    def describe(self, kernel: str) -> str:
        """Formats the signature: `add(x_ptr: *fp32, n: i32, BLOCK=256)`; `silu(x: fp32[128])`."""
        told = [f"{n}: {f'{t[1:]}{list(self.block)}' if n in self.loaded else t}" for n, t in self.types.items()]
        told += [f"{n}={v['dtype'] if isinstance(v, dict) else repr(v)}" for n, v in self.constants.items()]
        return f"{kernel}({', '.join(told)})"


def assume_signatures(module: Module, kernel: str) -> tuple[AssumedSignature, ...]:
    """Different ways to call it; none where a parameter is of a kind that a text does not tell (a descriptor, a
    function).
    """
    function, node = ModuleFunction(module, kernel), module.functions[kernel]
    if function.described or function.parameters.keys() & _called_names(node):
        return ()
    made = [
        _assume_signature(node, function, style)
        for style in (FUNCTION_GUESSES if returns_value(node) else KERNEL_GUESSES)
    ]
    return tuple(a for i, a in enumerate(made) if a not in made[:i])


def _assume_signature(node: ast.FunctionDef, function: ModuleFunction, style: SignatureGuess) -> AssumedSignature:
    defaults = _defaults(node)
    uses = _Uses(node)
    types: dict[str, str] = {}
    constants: dict[str, Any] = {}
    sizes = _sizes([n for n in function.parameters if n in function.constants and uses.kind(n) == "size"], style)
    for name in function.parameters:
        if name in function.constants:
            constants[name] = _constant(name, uses, defaults, style, sizes)
        elif name in defaults and defaults[name] is None and not style.flags:
            constants[name] = None
        else:
            types[name] = _type(name, function, defaults, style)
    loaded = [n for n in types if n not in function.pointers and not _SCALAR.search(n)] if returns_value(node) else []
    types |= {n: "*" + ("i32" if n in function.integers else style.element) for n in loaded}
    return AssumedSignature(
        types=types, constants=constants, tuned=not style.small, block=style.block, loaded=tuple(loaded)
    )


def _type(name: str, function: ModuleFunction, defaults: dict[str, Any], style: SignatureGuess) -> str:
    if name in function.pointers:
        return "*" + (style.index if f"*{name}" in function.integers else style.element)
    if name in function.integers:
        return "i32"
    default = defaults.get(name)
    if isinstance(default, bool | int | float):
        return "i1" if isinstance(default, bool) else "i32" if isinstance(default, int) else "fp32"
    if _FRACTION.search(name) or not _WHOLE.search(name):
        return "fp32"
    return "i32"


def _constant(name: str, uses: _Uses, defaults: dict[str, Any], style: SignatureGuess, sizes: dict[str, int]) -> Any:
    kind = uses.kind(name)
    if name in defaults and (style.flags or kind != "flag"):
        return defaults[name]
    if kind == "dtype":
        return {"dtype": "float16" if style.element == "fp16" else "float32"}
    if kind == "compared":
        told = uses.compared[name]
        return told[style.chosen % len(told)]
    if kind in ("flag", "loop"):
        return style.flags if kind == "flag" else 2
    if _FRACTION.search(name):
        return 1.0
    if small := next((v for part, v in _SMALL.items() if part in name.lower() and "size" not in name.lower()), None):
        return small
    return sizes.get(name, 64)


def _sizes(names: list[str], style: SignatureGuess) -> dict[str, int]:
    """Different ones as far as they go: with equal ones a kernel that mixes its axes up would compile."""
    order = (16, 32, 64, 128) if style.small else (64, 32, 16, 128) if len(names) > 1 else (256,)
    return {name: order[i % len(order)] for i, name in enumerate(names)}


class _Uses:
    """The uses of a kernel's constexprs in its text."""

    def __init__(self, node: ast.FunctionDef) -> None:
        self.compared: dict[str, list[Any]] = {}
        self._tested: set[str] = set()
        self._types: set[str] = set()
        self._loops: set[str] = set()
        self._shapes: set[str] = set()
        for inner in ast.walk(node):
            self._note(inner)

    def _note(self, node: ast.AST) -> None:
        if isinstance(node, ast.If | ast.IfExp):
            self._tested |= {n.id for n in _tests(node.test)}
        elif (
            isinstance(node, ast.Compare)
            and isinstance(node.left, ast.Name)
            and isinstance(node.ops[0], ast.Eq | ast.NotEq)
        ):
            other = node.comparators[0]
            if isinstance(other, ast.Constant) and isinstance(other.value, str | int):
                self.compared.setdefault(node.left.id, []).append(other.value)
        elif isinstance(node, ast.Call):
            direct = {a.id for a in node.args[:2] if isinstance(a, ast.Name)}
            if _function(node) in ("static_range", "range"):
                self._loops |= direct
            elif _function(node) in ("arange", "zeros", "full"):
                self._shapes |= direct | {n.id for a in node.args[:1] for n in ast.walk(a) if isinstance(n, ast.Name)}
            cast = isinstance(node.func, ast.Attribute) and node.func.attr == "to"
            given = [*(node.args[:1] if cast else ()), *(k.value for k in node.keywords if k.arg == "dtype")]
            self._types |= {v.id for v in given if isinstance(v, ast.Name)}

    def kind(self, name: str) -> str:
        """dtype, compared, loop, flag or size."""
        if name in self._types:
            return "dtype"
        if name in self.compared:
            return "compared"
        if _DTYPE.search(name):
            return "dtype"
        if name in self._loops - self._shapes:
            return "loop"
        return "flag" if name in self._tested or _FLAG.search(name) else "size"


def _tests(test: ast.expr) -> Iterator[ast.Name]:
    """Names that stand in a condition as they are."""
    if isinstance(test, ast.Name):
        yield test
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _tests(test.operand)
    elif isinstance(test, ast.BoolOp):
        for value in test.values:
            yield from _tests(value)


def _function(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


def _called_names(node: ast.FunctionDef) -> set[str]:
    return {n.func.id for n in ast.walk(node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}


def _defaults(node: ast.FunctionDef) -> dict[str, Any]:
    """Literal defaults by parameter."""
    positional = [*node.args.posonlyargs, *node.args.args]
    tail = positional[len(positional) - len(node.args.defaults) :]
    pairs = [
        *zip(tail, node.args.defaults, strict=True),
        *zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True),
    ]
    return {a.arg: v.value for a, v in pairs if isinstance(v, ast.Constant)}
