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
from pathlib import Path
from typing import Any

from kernelwright.agent.problems.forms_of_users.text_edits import joined
from kernelwright.bindings import bound_names, function_at_top
from kernelwright.tools.problem import ProblemError, parse

MIN_ELEMENTS_OF_A_CASE = 1024
"""Minimum number of elements, summed over all tensors of a case, at which results distinguish
correct kernels from wrong ones.
"""
MAX_DATA_FILE_BYTES = 4 << 20


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
        return (
            [json.loads(text)]
            if whole
            else [json.loads(line) for line in text.splitlines() if line.strip()]
        )
    except (OSError, ValueError, RecursionError) as error:
        raise ProblemError(
            f"{path.name}, which the reference reads, cannot be read: {error}"
        ) from None


# ---------------------------------------------------------------- one case a line
def _with_case(source: str, tree: ast.Module, path: Path) -> str:
    names = {
        n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)
    }
    named = sorted(name for name in names if name.endswith(".json") and name != ".json")
    beside = [
        path.with_name(name) for name in [*named, f"{path.stem}.json"] if Path(name).name == name
    ]
    if not (existing_files := [file for file in beside if file.is_file()]):
        raise ProblemError(
            f"its get_input_groups reads {', '.join(named) or f'{path.stem}.json'}: put that file beside it"
        )
    sizes: dict[str, int] = {}
    case = _named_sizes(_chosen(_rows(existing_files[0])), sizes)
    size_lines = "\n".join(f"{name} = {value}" for name, value in sizes.items())
    return joined(_without_open(source, tree), [
        f"import io\nimport json\n\n__file__ = {path.name!r}\n{size_lines}\nCASE = {case}",
        "def get_inputs():\n    return list(get_input_groups()[0])",
    ])  # fmt: skip


def _chosen(cases: list[Any]) -> Any:
    """Returns the first case with enough elements, otherwise the largest case.

    Raises ProblemError if there is no case.
    """
    if not cases:
        raise ProblemError("the JSON file beside it holds no case: write at least one")
    return next(
        (case for case in cases if _elements(case) >= MIN_ELEMENTS_OF_A_CASE),
        max(cases, key=_elements),
    )


def _elements(case: Any) -> int:
    total = 0
    for description in case.get("inputs", ()) if isinstance(case, dict) else ():
        shape = description.get("shape") if isinstance(description, dict) else None
        if isinstance(shape, list) and all(type(n) is int for n in shape):
            count = 1
            for extent in shape:
                count *= extent
            total += count
    return total


def _named_sizes(value: Any, sizes: dict[str, int], listed: bool = False) -> str:
    """Writes a JSON value as Python text and replaces extents in lists by names.

    Equal extents share a name.

        _named_sizes({"shape": [64, 64], "dtype": "float"}, sizes)
        "{'shape': [size_64, size_64], 'dtype': 'float'}"     sizes == {"size_64": 64}
    """
    if isinstance(value, dict):
        return f"{{{', '.join(f'{k!r}: {_named_sizes(v, sizes)}' for k, v in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(_named_sizes(v, sizes, listed=True) for v in value)}]"
    if listed and type(value) is int and value > 1:
        sizes[f"size_{value}"] = value
        return f"size_{value}"
    return repr(value)


def _without_open(source: str, tree: ast.Module) -> str:
    """Replaces every `open(...)` call by an in-memory file with the chosen case."""
    lines = source.splitlines()
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and ast.unparse(n.func) == "open"]
    for call in sorted(calls, key=lambda n: (n.lineno, n.col_offset), reverse=True):
        if call.end_lineno != call.lineno:
            raise ProblemError(
                f"its open(...) at line {call.lineno} stands on several lines: write it on one"
            )
        line = lines[call.lineno - 1].encode()
        changed = (
            line[: call.col_offset] + b"io.StringIO(json.dumps(CASE))" + line[call.end_col_offset :]
        )
        lines[call.lineno - 1] = changed.decode()
    return "\n".join(lines) + "\n"


# ---------------------------------------------------------------- arguments
def _configured(source: str, tree: ast.Module, maker: ast.FunctionDef, config: Any) -> str:
    """Adds the first configuration's values as module-level names, and functions that pass them
    on. Raises ProblemError.
    """
    if not isinstance(config, dict):
        raise ProblemError("its configuration is no JSON object: write one, such as {'size': 128}")
    settings: dict[str, Any] = {}
    for name, value in config.items():
        first = value[0] if name.startswith("single_") and isinstance(value, list) and value else {}
        settings |= first if isinstance(first, dict) else {}
    model = next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Model"), None)
    init = (
        next(
            (n for n in model.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None
        )
        if model
        else None
    )
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
