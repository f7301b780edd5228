"""Parses the values of `--init` and `--input` into Python expressions.

    --init 64   --init rate=0.5   --init 'config=LlamaConfig(hidden_size=512)'   --init 'config=LlamaConfig(@FILE.json)'
    --input 4x64   --input x=2x128x512:bf16   --input 'ids=2x128:int64<1000'   --input 'xs=[4x8,4x8]'   --input gain=0.7

    read_inputs(["x=2x64:bf16"], sizes).named     {"x": "torch.randn((x_0, x_1), dtype=torch.bfloat16)"}
    sizes.lines                                   ["x_0 = 2", "x_1 = 64"]

Nothing is evaluated: only literals, torch dtypes and calls of names are accepted.
"""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from kernelwright.agent.problems.syntax_search import calls_inside
from kernelwright.tools.problem import ProblemError

DTYPE_ALIASES = {
    "float32": "float32", "f32": "float32", "fp32": "float32", "float": "float32",
    "float64": "float64", "f64": "float64", "fp64": "float64", "double": "float64",
    "float16": "float16", "f16": "float16", "fp16": "float16", "half": "float16",
    "bfloat16": "bfloat16", "bf16": "bfloat16", "complex64": "complex64",
    "int64": "int64", "i64": "int64", "long": "int64", "int32": "int32", "i32": "int32", "int": "int32",
    "int16": "int16", "i16": "int16", "int8": "int8", "i8": "int8", "uint8": "uint8", "u8": "uint8", "bool": "bool",
    "float8_e4m3fn": "float8_e4m3fn", "float8_e5m2": "float8_e5m2",
}  # fmt: skip
"""Command-line names of dtypes, and their names in torch."""
NAMED = re.compile(r"([A-Za-z_]\w*)=(?!=)(.*)", re.DOTALL)
TENSOR = re.compile(r"(\d+(?:x\d+)*|\(\))(?::(\w+))?(?:<(\d+))?")
JSON_FILE = re.compile(r"@([^\s,()\[\]{}'\"]+)")
DEFAULT_HIGH = 10
"""Exclusive upper bound of random integers without an explicit range."""
PLAIN_NODES = (
    ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.UnaryOp, ast.unaryop, ast.expr_context, ast.Call, ast.keyword,
    ast.Name, ast.Attribute,
)  # fmt: skip


@dataclass
class RebuiltArguments:
    """Arguments of a call as expressions; sizes appear as module-level names."""

    args: list[str] = field(default_factory=list)
    named: dict[str, str] = field(default_factory=dict)
    dtypes: set[str] = field(default_factory=set)
    """Floating-point dtypes of the tensors."""
    preparation: str = ""
    """Method calls after the constructor: `.to(torch.float16).eval()`."""

    def add(self, name: str, text: str, option: str) -> None:
        """Adds an argument.

        Raises ProblemError for duplicates, and for a positional argument after a named one.
        """
        if name and name in self.named:
            raise ProblemError(f"{option} names {name} twice: name each argument once")
        if not name and self.named:
            raise ProblemError(
                f"{option} {text}: arguments without a name come before those with one"
            )
        if name:
            self.named[name] = text
        else:
            self.args.append(text)

    @property
    def text(self) -> str:
        """Returns the arguments as text inside a call."""
        return ", ".join([*self.args, *(f"{name}={text}" for name, text in self.named.items())])


class NamedSizes:
    """Integers written as module-level names, because the judge varies these."""

    def __init__(self, reserved_names: set[str]) -> None:
        self._reserved_names = set(reserved_names)
        self.values: dict[str, int] = {}
        self._of_init: dict[int, str] = {}

    def named(self, preferred_name: str, value: int, *, of_init: bool = False) -> str:
        """Returns the name of a size: the name of an equal constructor argument, otherwise a new
        name like `preferred_name`.
        """
        if not of_init and value in self._of_init:
            return self._of_init[value]
        name = preferred_name
        while name in self._reserved_names or self.values.get(name, value) != value:
            name += "_"
        self.values[name] = value
        # Up to 8, equal numbers are often unrelated (heads, groups, layers): share no name.
        if of_init and value > 8:
            self._of_init.setdefault(value, name)
        return name

    @property
    def lines(self) -> list[str]:
        """Returns an assignment for each size."""
        return [f"{name} = {value}" for name, value in self.values.items()]


def read_init(options: list[str], sizes: NamedSizes) -> RebuiltArguments:
    """Parses the values of `--init`. Raises ProblemError."""
    arguments = RebuiltArguments()
    for index, option in enumerate(options):
        name, text = _split(option)
        value = _expression(f"--init {option}", text)
        if not name and isinstance(value, ast.Dict) and text.strip().startswith("@"):
            for key, entry in zip(value.keys, value.values, strict=True):
                arguments.add(
                    str(ast.literal_eval(key or ast.Constant(""))), ast.unparse(entry), "--init"
                )
            continue
        arguments.add(
            name, ast.unparse(_with_names(value, name or f"init_{index}", sizes)), "--init"
        )
    return arguments


def read_inputs(options: list[str], sizes: NamedSizes) -> RebuiltArguments:
    """Parses the values of `--input`. Raises ProblemError."""
    arguments = RebuiltArguments()
    for index, option in enumerate(options):
        name, text = _split(option)
        value = _input(option, text.strip(), name or f"x{index or ''}", sizes)
        arguments.add(name, value, "--input")
        arguments.dtypes |= _floating_dtypes(value)
    return arguments


def _floating_dtypes(value: str) -> set[str]:
    """Returns the floating-point dtypes of tensors drawn by an expression."""
    dtypes: set[str] = set()
    for call in calls_inside(ast.parse(value)):
        if ast.unparse(call.func) == "torch.randn":
            # `_tensor` writes dtype= only for other dtypes than float32.
            dtype = call.keywords[0].value if call.keywords else None
            dtypes.add("torch.float32" if dtype is None else ast.unparse(dtype))
    return dtypes


def _split(option: str) -> tuple[str, str]:
    match = NAMED.fullmatch(option.strip())
    return (match[1], match[2]) if match else ("", option)


# ---------------------------------------------------------------- values
def _expression(option: str, text: str) -> ast.expr:
    """Parses a value. Raises ProblemError for anything but literals, names and calls."""
    text = JSON_FILE.sub(lambda match: _json_text(option, match, text), text.strip())
    try:
        value = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError):
        # Shells remove quotes: a word that is not Python is a text.
        if re.fullmatch(r"[\w./:+-]+", text):
            return ast.Constant(text)
        raise ProblemError(
            f"{option} is no value: write a number, 'text', a list, Config(width=64) or @FILE.json"
        ) from None
    if isinstance(value, ast.Name):
        return ast.Constant(value.id)
    nodes = [node for node in ast.walk(value) if not isinstance(node, PLAIN_NODES)]
    if nodes:
        part = ast.unparse(nodes[0]) if isinstance(nodes[0], ast.expr) else text
        raise ProblemError(
            f"{option}: {part!r} is neither a literal nor a call: write the value out, or put it in a file"
        )
    return value


def _json_text(option: str, match: re.Match[str], text: str) -> str:
    """Returns the content of a JSON file as a literal, or as keyword arguments inside a call."""
    path = Path(match[1]).expanduser()
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ProblemError(f"{option}: {path} cannot be read: {error.strerror or error}") from None
    except ValueError:
        raise ProblemError(
            f'{option}: {path} is no JSON: write an object such as {{"hidden_size": 512}}'
        ) from None
    before = text[: match.start()].rstrip()
    is_argument = before.endswith(("(", ",")) and isinstance(value, dict)
    if is_argument:
        return ", ".join(f"{key}={entry!r}" for key, entry in value.items())
    return repr(value)


def _with_names(value: ast.expr, name: str, sizes: NamedSizes) -> ast.expr:
    """Replaces integers in a value by module-level names, derived from the argument names."""
    if isinstance(value, ast.Constant) and type(value.value) is int and value.value > 1:
        return ast.Name(sizes.named(name, value.value, of_init=True), ast.Load())
    if isinstance(value, ast.Call):
        for index, argument in enumerate(value.args):
            value.args[index] = _with_names(argument, f"{name}_{index}", sizes)
        for keyword in value.keywords:
            keyword.value = _with_names(keyword.value, keyword.arg or name, sizes)
    return value


# ---------------------------------------------------------------- inputs
def _input(option: str, text: str, name: str, sizes: NamedSizes) -> str:
    """Returns the expression of an input."""
    if match := TENSOR.fullmatch(text):
        return _tensor(option, match, name, sizes)
    if text.startswith("[") and text.endswith("]") and re.search(r"\dx\d|:", text):
        elements: list[str] = []
        for index, element in enumerate(re.split(r"\s*,\s*", text[1:-1].strip())):
            if element:
                elements.append(_input(option, element, f"{name}_{index}", sizes))
        return f"[{', '.join(elements)}]"
    if re.fullmatch(r"int\(-?\d+\)", text):
        return text[4:-1]
    value = _expression(f"--input {option}", text)
    is_word = isinstance(value, ast.Constant) and value.value == text
    if is_word or any(isinstance(node, ast.Call | ast.Name) for node in ast.walk(value)):
        raise ProblemError(
            f"--input {option} is no input: write NAME=SHAPE:DTYPE, such as x=2x128x512:bf16, or a number such as 0.5"
        )
    return ast.unparse(value)


def _tensor(option: str, match: re.Match[str], name: str, sizes: NamedSizes) -> str:
    """Returns the expression that draws a tensor."""
    shape, alias, high = match[1], match[2] or "float32", match[3]
    if alias not in DTYPE_ALIASES:
        raise ProblemError(
            f"--input {option}: there is no dtype {alias}: choose {', '.join(dict.fromkeys(DTYPE_ALIASES.values()))}"
        )
    dtype = DTYPE_ALIASES[alias]
    extents = [] if shape == "()" else [int(extent) for extent in shape.split("x")]
    # Extents of 1 broadcast and must not vary, so they stay numbers.
    names: list[str] = []
    for axis, extent in enumerate(extents):
        names.append(sizes.named(f"{name}_{axis}", extent) if extent > 1 else str(extent))
    written = f"({', '.join(names)}{',' if len(names) == 1 else ''})"
    if dtype == "bool":
        return f"torch.rand({written}) > 0.5"
    if dtype.startswith(("int", "uint")):
        return f"torch.randint(0, {high or DEFAULT_HIGH}, {written}, dtype=torch.{dtype})"
    if high:
        raise ProblemError(
            f"--input {option}: <{high} is a range of integers: name an integer dtype, or leave it out"
        )
    if dtype.startswith("float8"):
        return f"torch.randn({written}).to(torch.{dtype})"
    return f"torch.randn({written}{'' if dtype == 'float32' else f', dtype=torch.{dtype}'})"
