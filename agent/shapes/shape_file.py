"""Reads shapes.json of `agent solve --shapes`: which calls a kernel is for.

Each entry is a shape, in any of these forms; an object may also have a "name":

    {"batch": 1, "seq": 1}                                     sizes named by the problem
    {"x": [1, 1, 64], "mask": [1, 64]}                         shapes by the names of forward's arguments
    {"inputs": [[1, 1, 64], {"shape": [1, 64], "dtype": "bf16"}]}   inputs in the order of forward
    [[1, 1, 64], [1, 64]]    [8, 64]                           likewise; the last for a single input

The file is a list of entries, or an object of entries by their names. Nothing of the problem is read here.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from kernelwright.agent.problems.entry_points.option_values import DTYPE_ALIASES
from kernelwright.errors import InputError
from kernelwright.tools.report import Value

SHAPE_FORMS = 'such as {"batch": 1, "seq": 16}, {"x": [1, 16, 64]} or [[1, 16, 64]]'
MAX_JUDGED_SHAPES = 64
ENTRY_KEYS = frozenset({"name", "sizes", "inputs"})
INPUT_KEYS = frozenset({"shape", "dtype", "value"})


class WantedInput(Value):
    """An input of a call: a tensor of a shape, or a plain value."""

    shape: tuple[int, ...] | None = None
    """None: the shape drawn by `get_inputs`."""
    dtype: str = ""
    """torch's name; empty for the problem's dtype."""
    value: bool | int | float | str | None = None
    """Plain value, in place of the problem's own."""


class WantedShape(Value):
    """An entry of the file."""

    name: str
    sizes: dict[str, int] = {}
    inputs: tuple[WantedInput, ...] = ()
    """By position."""
    named_inputs: dict[str, WantedInput] = {}
    """By the name of forward's argument; the others stay as `get_inputs` draws them."""


def read_shapes(file_or_text: str) -> tuple[WantedShape, ...]:
    """Reads a file, or the JSON itself if the text begins with a bracket. Raises InputError."""
    stripped = file_or_text.strip()
    is_json = stripped.startswith(("[", "{"))
    origin = "--shapes" if is_json else f"--shapes {stripped}"
    try:
        text = stripped if is_json else Path(stripped).expanduser().read_text(encoding="utf-8-sig")
        document = json.loads(text)
    except OSError as error:
        raise InputError(f"{origin} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise InputError(f"{origin} is not UTF-8 text") from None
    except (ValueError, RecursionError) as error:
        position = (
            f": {error.msg} at line {error.lineno}"
            if isinstance(error, json.JSONDecodeError)
            else ""
        )
        raise InputError(
            f"{origin} is no JSON{position}: write a list of shapes, {SHAPE_FORMS}"
        ) from None
    return _shapes(origin, document)


def _shapes(origin: str, document: object) -> tuple[WantedShape, ...]:
    entries: list[tuple[str, object]] = []
    if isinstance(document, dict) and all(isinstance(v, dict | list) for v in document.values()):
        entries = list(document.items())
    elif isinstance(document, list):
        entries = [("", entry) for entry in document]
    else:
        raise InputError(f"{origin} must hold a list of shapes, {SHAPE_FORMS}")
    if not 1 <= len(entries) <= MAX_JUDGED_SHAPES:
        raise InputError(f"{origin} holds {len(entries)} shapes: give 1 to {MAX_JUDGED_SHAPES}")
    shapes: list[WantedShape] = []
    for number, (name, entry) in enumerate(entries, 1):
        label = f"{origin}, shape {number}" + (f" ({name})" if name else "")
        shapes.append(_shape(label, name or f"shape {number}", entry))
    names = [shape.name for shape in shapes]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(
            f"{origin} names {', '.join(repeated)} twice: give each shape a name of its own"
        )
    return tuple(shapes)


def _shape(label: str, name: str, entry: object) -> WantedShape:
    if isinstance(entry, list):
        return WantedShape(name=name, inputs=_inputs(label, entry))
    if not isinstance(entry, dict) or not entry:
        raise InputError(f"{label} is {_shown(entry)}: write {SHAPE_FORMS}")
    fields = dict(entry)
    name = _name(label, fields.pop("name")) if isinstance(fields.get("name"), str) else name
    if ENTRY_KEYS & fields.keys() and isinstance(fields.get("inputs", {}), dict | list):
        if unknown := sorted(fields.keys() - ENTRY_KEYS):
            raise InputError(f"{label} has {', '.join(unknown)} beside name, sizes and inputs")
        inputs, sizes = fields.get("inputs", []), _sizes(label, fields.get("sizes", {}))
        if isinstance(inputs, dict):
            return WantedShape(name=name, sizes=sizes, named_inputs=_named(label, inputs))
        return WantedShape(name=name, sizes=sizes, inputs=_inputs(label, inputs) if inputs else ())
    # `type`, not isinstance: `true` is no size.
    sizes = {key: value for key, value in fields.items() if type(value) is int}
    named_shapes = {key: value for key, value in fields.items() if key not in sizes}
    return WantedShape(
        name=name, sizes=_sizes(label, sizes), named_inputs=_named(label, named_shapes)
    )


def _name(label: str, name: str) -> str:
    text = " ".join(name.split())
    if not re.fullmatch(r"[\w .,:=+-]{1,60}", text):
        raise InputError(
            f"{label} has the name {name[:60]!r}: up to 60 letters, digits, spaces or . , : = + -"
        )
    return text


def _sizes(label: str, sizes: object) -> dict[str, int]:
    if not isinstance(sizes, dict):
        raise InputError(
            f'{label} has sizes {_shown(sizes)}: write names with numbers, {{"batch": 1}}'
        )
    for name, value in sizes.items():
        if type(value) is not int or value < 0:
            raise InputError(
                f"{label} has {name} = {_shown(value)}: a size is a whole number from 0"
            )
    return dict(sizes)


def _named(label: str, inputs: dict[str, object]) -> dict[str, WantedInput]:
    return {name: _input(f"{label}, {name}", entry) for name, entry in inputs.items()}


def _inputs(label: str, entries: list[object]) -> tuple[WantedInput, ...]:
    if not entries:
        raise InputError(f"{label} is empty: write {SHAPE_FORMS}")
    # `[8, 64]` is the shape of a single input, not two inputs.
    if all(type(entry) is int for entry in entries):
        return (_input(label, entries),)
    return tuple(_input(f"{label}, input {n}", entry) for n, entry in enumerate(entries, 1))


def _input(label: str, entry: object) -> WantedInput:
    """Reads `[1, 64]`, `{"shape": [1, 64], "dtype": "bf16"}`, `{"value": 3}`, or null for the problem's own."""
    if entry is None:
        return WantedInput()
    if isinstance(entry, list):
        return WantedInput(shape=_extents(label, entry))
    if not isinstance(entry, dict):
        raise InputError(
            f'{label} is {_shown(entry)}: write [1, 16, 64], {{"shape": [1, 16, 64], "dtype": "bf16"}} or null'
        )
    if unknown := sorted(entry.keys() - INPUT_KEYS):
        raise InputError(f"{label} has {', '.join(unknown)}: an input has shape, dtype or value")
    if "value" in entry:
        if entry["value"] is None or isinstance(entry["value"], dict | list):
            raise InputError(
                f"{label} has the value {_shown(entry['value'])}: write a number or a text"
            )
        if len(entry) > 1:
            raise InputError(f"{label} has a value beside shape or dtype: write either")
        return WantedInput(value=entry["value"])
    shape = entry.get("shape")
    if shape is not None and not isinstance(shape, list):
        raise InputError(f"{label} has the shape {_shown(shape)}: write a list such as [1, 16, 64]")
    return WantedInput(
        shape=None if shape is None else _extents(label, shape),
        dtype=dtype_named(f"{label}: ", entry["dtype"]) if "dtype" in entry else "",
    )


def _extents(label: str, shape: list[object]) -> tuple[int, ...]:
    extents = [extent for extent in shape if type(extent) is int and extent >= 0]
    if len(extents) != len(shape):
        raise InputError(f"{label} has the shape {_shown(shape)}: extents are whole numbers from 0")
    return tuple(extents)


def dtype_named(label: str, name: object) -> str:
    """Returns torch's name of a dtype: `bfloat16` for `bf16`. Raises InputError."""
    text = str(name).strip().removeprefix("torch.")
    if text not in DTYPE_ALIASES:
        dtype_names = ", ".join(dict.fromkeys(DTYPE_ALIASES.values()))
        raise InputError(f"{label}there is no dtype {text!r}: choose {dtype_names}")
    return DTYPE_ALIASES[text]


def read_dtypes(text: str) -> tuple[str, ...]:
    """Reads `--dtype bf16,fp16,fp32` as torch's names. Raises InputError for other than floating dtypes."""
    dtypes = tuple(dict.fromkeys(dtype_named("--dtype: ", part) for part in text.split(",")))
    for dtype in dtypes:
        if dtype not in ("float32", "float64", "float16", "bfloat16"):
            raise InputError(f"--dtype {dtype}: a module is cast to fp32, fp64, fp16 or bf16")
    return dtypes


def _shown(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."
