"""Completes references whose inputs are described by a JSON file beside them.

Text to text: nothing is run.

- NPUKernelBench (as in MultiKernelBench): `get_input_groups()` reads a JSON file with a test case
  per line. The first sufficiently large case is written into the text, with its extents as
  module-level names, and `get_inputs` returns the input group of the case.
- robust-kbench: `func_X.py` with `config_X.json`, which contains the arguments of `Model` and
  `get_inputs`.
"""

from __future__ import annotations

import ast
import json
import math
from pathlib import Path
from typing import Any

from kernelwright.agent.problems.forms_of_users.text_edits import joined
from kernelwright.agent.problems.syntax_search import calls_inside, first_definition
from kernelwright.bindings import bound_names, function_at_top
from kernelwright.tools.problem import ProblemError, parse

MIN_ELEMENTS_OF_A_CASE = 1024
"""Minimum number of elements, summed over all tensors of a case, at which results distinguish
correct kernels from wrong ones.
"""
MAX_DATA_FILE_BYTES = 4 << 20
"""Maximum size of a data file, in bytes."""


def with_data(source: str, path: Path) -> str:
    """Returns the text with the values of its JSON file, or unchanged if the text reads no file.

    Raises ProblemError if the file is unusable.
    """
    tree = parse(source)
    names = bound_names(tree)
    if "get_inputs" not in names and "get_input_groups" in names:
        return _with_case(source, tree, path)
    config = path.with_name(f"config_{path.stem.removeprefix('func_')}.json")
    maker = function_at_top(tree, "get_inputs")
    if maker is not None and "get_init_inputs" not in names and config.is_file():
        return _configured(source, tree, maker, _json(config))
    return source


def _json(path: Path) -> Any:
    return _rows(path, whole=True)[0]


def _rows(path: Path, whole: bool = False) -> list[Any]:
    """Parses a JSON file line by line, or as a single value if `whole`.

    Raises ProblemError.
    """
    try:
        if path.stat().st_size > MAX_DATA_FILE_BYTES:
            raise ProblemError(
                f"{path.name} is larger than {MAX_DATA_FILE_BYTES >> 20} MB: keep the cases that are needed"
            )
        text = path.read_text(encoding="utf-8")
        if whole:
            return [json.loads(text)]
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except (OSError, ValueError, RecursionError) as error:
        raise ProblemError(
            f"{path.name}, which the reference reads, cannot be read: {error}"
        ) from None


# ---------------------------------------------------------------- one case a line
def _with_case(source: str, tree: ast.Module, path: Path) -> str:
    file_names = _json_names_in(tree)
    # Only files beside the reference are read: names with folders are not followed.
    candidates = [name for name in [*file_names, f"{path.stem}.json"] if Path(name).name == name]
    existing_files = [path.with_name(name) for name in candidates if path.with_name(name).is_file()]
    if not existing_files:
        missing = ", ".join(file_names) or f"{path.stem}.json"
        raise ProblemError(f"its get_input_groups reads {missing}: put that file beside it")
    sizes: dict[str, int] = {}
    case = _named_sizes(_chosen(_rows(existing_files[0])), sizes)
    size_lines = "\n".join(f"{name} = {value}" for name, value in sizes.items())
    return joined(_without_open(source, tree), [
        f"import io\nimport json\n\n__file__ = {path.name!r}\n{size_lines}\nCASE = {case}",
        "def get_inputs():\n    return list(get_input_groups()[0])",
    ])  # fmt: skip


def _json_names_in(tree: ast.Module) -> list[str]:
    """Returns the names of JSON files among the texts of a module, sorted."""
    names: set[str] = set()
    for node in ast.walk(tree):
        value = node.value if isinstance(node, ast.Constant) else None
        if isinstance(value, str) and value.endswith(".json") and value != ".json":
            names.add(value)
    return sorted(names)


def _chosen(cases: list[Any]) -> Any:
    """Returns the first case with enough elements, otherwise the largest case.

    Raises ProblemError if there is no case.
    """
    if not cases:
        raise ProblemError("the JSON file beside it holds no case: write at least one")
    for case in cases:
        if _elements(case) >= MIN_ELEMENTS_OF_A_CASE:
            return case
    return max(cases, key=_elements)


def _elements(case: object) -> int:
    """Returns the number of elements of all tensors that a case describes."""
    total = 0
    for description in case.get("inputs", ()) if isinstance(case, dict) else ():
        shape = description.get("shape") if isinstance(description, dict) else None
        if isinstance(shape, list) and all(type(extent) is int for extent in shape):
            total += math.prod(shape)
    return total


def _named_sizes(value: object, sizes: dict[str, int], listed: bool = False) -> str:
    """Writes a JSON value as Python text and replaces extents in lists by names.

    Equal extents share a name.

        _named_sizes({"shape": [64, 64], "dtype": "float"}, sizes)
        "{'shape': [size_64, size_64], 'dtype': 'float'}"     sizes == {"size_64": 64}
    """
    if isinstance(value, dict):
        entries = [f"{key!r}: {_named_sizes(entry, sizes)}" for key, entry in value.items()]
        return f"{{{', '.join(entries)}}}"
    if isinstance(value, list):
        elements = [_named_sizes(element, sizes, listed=True) for element in value]
        return f"[{', '.join(elements)}]"
    if listed and type(value) is int and value > 1:
        sizes[f"size_{value}"] = value
        return f"size_{value}"
    return repr(value)


def _without_open(source: str, tree: ast.Module) -> str:
    """Replaces every `open(...)` call by an in-memory file with the chosen case."""
    lines = source.splitlines()
    calls = [call for call in calls_inside(tree) if ast.unparse(call.func) == "open"]
    # From the last call to the first, so that columns of earlier calls stay valid.
    for call in sorted(calls, key=lambda call: (call.lineno, call.col_offset), reverse=True):
        if call.end_lineno != call.lineno:
            raise ProblemError(
                f"its open(...) at line {call.lineno} stands on several lines: write it on one"
            )
        # Columns of syntax trees count bytes of UTF-8.
        line = lines[call.lineno - 1].encode()
        changed = (
            line[: call.col_offset] + b"io.StringIO(json.dumps(CASE))" + line[call.end_col_offset :]
        )
        lines[call.lineno - 1] = changed.decode()
    return "\n".join(lines) + "\n"


# ---------------------------------------------------------------- arguments
def _configured(source: str, tree: ast.Module, maker: ast.FunctionDef, config: object) -> str:
    """Adds the first configuration's values as module-level names, and functions that pass them
    on. Raises ProblemError.
    """
    if not isinstance(config, dict):
        raise ProblemError("its configuration is no JSON object: write one, such as {'size': 128}")
    settings: dict[str, Any] = {}
    # `single_*` entries list configurations; the first of each list is used.
    for name, value in config.items():
        if name.startswith("single_") and isinstance(value, list) and value:
            settings |= value[0] if isinstance(value[0], dict) else {}
    model = first_definition(tree.body, ast.ClassDef, "Model")
    init = first_definition(model.body, ast.FunctionDef, "__init__") if model else None
    builds = [a.arg for a in init.args.args if a.arg in settings] if init else []
    draws = [a.arg for a in maker.args.args if a.arg in settings]
    lines = source.splitlines()
    lines[maker.lineno - 1] = lines[maker.lineno - 1].replace(
        "def get_inputs", "def drawn_inputs", 1
    )
    values = "\n".join(f"{name} = {settings[name]!r}" for name in dict.fromkeys([*draws, *builds]))
    return joined("\n".join(lines), [
        values,
        f"def get_inputs():\n    return drawn_inputs({', '.join(f'{n}={n}' for n in draws)})",
        f"def get_init_inputs():\n    return {{{', '.join(f'{n!r}: {n}' for n in builds)}}}",
    ])  # fmt: skip
