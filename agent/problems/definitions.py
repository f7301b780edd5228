r"""Reads definitions of flashinfer-bench and SOL-ExecBench: JSON files with axes, inputs and the
reference's source.

    {"name": ..., "axes": {"M": {"type": "var"}, "K": {"type": "const", "value": 4096}},
     "inputs": {"A": {"shape": ["M", "K"], "dtype": "float16"}, "eps": {"shape": null, "dtype": "float32"}},
     "reference": "import torch\\n\\ndef run(A, eps): ..."}

The first workload (`workload.jsonl` beside the file, or `workloads/**/NAME.jsonl` beside
`definitions`) sets the free axes and scalars, and how inputs are drawn. Text to text: nothing is
run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kernelwright.agent.problems.reading import problem_of, read_text
from kernelwright.tools.problem import Problem, ProblemError, parse

FREE_AXIS_SIZE = 64
"""Size of a free axis without a workload."""
FLOAT_DTYPES = frozenset(("float64", "float32", "float16", "bfloat16"))
FLOAT8_DTYPES = frozenset(("float8_e4m3fn", "float8_e5m2"))
INTEGER_DTYPES = frozenset(("int64", "int32", "int16", "int8", "uint8"))


def is_definition(path: Path) -> bool:
    """Returns whether a file has the keys of a definition."""
    return path.suffix == ".json" and path.is_file() and _is_definition(_loaded(path))


def definitions_in(folder: Path) -> list[Path]:
    """Returns the definitions of a folder: `definition.json` files at any depth, otherwise the
    files in `definitions`.
    """
    nested_files = sorted(folder.rglob("definition.json"))
    files = (
        nested_files
        or sorted((folder / "definitions").rglob("*.json"))
        or sorted(folder.glob("*.json"))
    )
    return [file for file in files if is_definition(file)]


def read_definition(path: Path) -> Problem:
    """Reads a definition as a problem. Raises ProblemError if impossible, with advice."""
    definition = _loaded(path)
    name = (
        str(definition.get("name", path.parent.name)) if isinstance(definition, dict) else path.stem
    )
    if not _is_definition(definition):
        raise ProblemError(f"{path.name}: a definition has axes, inputs and the reference's text")
    try:
        source = written(definition, _workload(path, name))
        return problem_of(
            source, name, "file", title=str(definition.get("description") or "").split("\n")[0]
        )
    except ProblemError as error:
        raise error if str(error).startswith(name) else ProblemError(f"{name}: {error}") from None


def _is_definition(value: object) -> bool:
    return isinstance(value, dict) and {"axes", "inputs", "reference"} <= value.keys()


def _loaded(path: Path) -> Any:
    try:
        return json.loads(read_text(path))
    except (ValueError, RecursionError):
        return None


def _workload(path: Path, name: str) -> Mapping[str, Any]:
    """Returns the first workload of a definition; empty if there is none."""
    files: Iterator[Path] = iter(
        (path.with_name("workload.jsonl"), path.with_name("workloads.jsonl"))
    )
    if "definitions" in path.parts:
        root = path.parents[len(path.parts) - path.parts.index("definitions") - 1]
        files = iter(sorted((root / "workloads").rglob(f"{name}.jsonl")))
    for file in files:
        if file.is_file():
            lines = [line for line in read_text(file).splitlines() if line.strip()]
            row = json.loads(lines[0] if lines else "{}")
            # Some suites nest the workload in the row.
            return dict(row.get("workload", row))
    return {}


def written(definition: Mapping[str, Any], workload: Mapping[str, Any]) -> str:
    """Writes the reference in KernelBench form. Raises ProblemError."""
    reference = str(definition["reference"]).rstrip()
    if not any(getattr(node, "name", "") == "run" for node in parse(reference).body):
        raise ProblemError("its reference defines no function `run`: give it that name")
    axes = dict(_axes(definition["axes"], workload.get("axes", {})))
    inputs = _Inputs(axes, definition, workload)
    drawn = {name: inputs.drawn(name, spec) for name, spec in definition["inputs"].items()}
    names, expressions = ", ".join(drawn), ", ".join(drawn.values())
    return "\n\n\n".join([
        reference if "import torch\n" in reference else f"import torch\n\n{reference}",
        "\n".join(f"{name} = {value}" for name, value in axes.items()),
        f"class Model(torch.nn.Module):\n    def forward(self, {names}):\n        return run({names})",
        f"def get_inputs():\n{inputs.custom()}    return [{expressions}]",
        "def get_init_inputs():\n    return []\n",
    ])  # fmt: skip


def _axes(axes: Mapping[str, Any], chosen: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields each axis with its value as text; computed axes come last, because they refer to the
    others.
    """
    computed = {
        name: str(axis["expression"]) for name, axis in axes.items() if "expression" in axis
    }
    for name, axis in axes.items():
        if not name.isidentifier():
            raise ProblemError(
                f"its axis {name!r} is not named as in Python: use letters, digits and _"
            )
        if name not in computed:
            yield name, str(int(axis.get("value", chosen.get(name, FREE_AXIS_SIZE))))
    yield from computed.items()


class _Inputs:
    """Writes the code that draws the inputs of a definition."""

    def __init__(
        self, axes: Mapping[str, str], definition: Mapping[str, Any], workload: Mapping[str, Any]
    ) -> None:
        self._axes, self._drawings = axes, workload.get("inputs", {})
        self._maker = definition.get("custom_inputs_entrypoint") or ""
        self._scalars: dict[str, object] = {}
        for name, drawing in self._drawings.items():
            if drawing.get("type") == "scalar":
                self._scalars[name] = drawing["value"]
        # Integer inputs may be indices into any axis: draw them below the smallest.
        whole = [name for name, value in axes.items() if value.isdigit() and int(value) > 1]
        self._bound = f"min({', '.join(whole)})" if len(whole) > 1 else (whole or ["64"])[0]

    def custom(self) -> str:
        """Returns the line that calls the definition's custom input function; empty if the
        workload uses none.
        """
        if not any(drawing.get("type") == "custom" for drawing in self._drawings.values()):
            return ""
        entries = [f"{axis!r}: {axis}" for axis in self._axes]
        entries += [f"{name!r}: {value!r}" for name, value in self._scalars.items()]
        return f"    made = {self._maker}({{{', '.join(entries)}}}, torch.empty(0).device)\n"

    def drawn(self, name: str, spec: Mapping[str, Any]) -> str:
        """Returns the expression that draws an input. Raises ProblemError."""
        drawing = self._drawings.get(name, {})
        kind, dtype = drawing.get("type", "random"), str(spec["dtype"])
        if kind == "scalar":
            return repr(drawing["value"])
        if kind == "custom" and self._maker:
            return f"made[{name!r}]"
        if spec.get("shape") is None:
            raise ProblemError(
                f"its scalar {name} has no value: give one in a workload.jsonl beside the definition"
            )
        if kind not in ("random", "generated"):
            raise ProblemError(
                f"its input {name} comes from a file ({kind}): choose a workload whose inputs are random"
            )
        shape = f"({', '.join(map(str, spec['shape']))}{',' if len(spec['shape']) == 1 else ''})"
        return (
            _generated(name, shape, dtype, drawing["generator"])
            if kind == "generated"
            else self._random(shape, dtype)
        )

    def _random(self, shape: str, dtype: str) -> str:
        """Returns a random tensor expression for a dtype.

        Integers may be indices, so they stay below the smallest axis.
        """
        if dtype in FLOAT_DTYPES:
            return f"torch.randn({shape}, dtype=torch.{dtype})"
        if dtype in FLOAT8_DTYPES:
            return f"torch.randn({shape}).clamp(-2.0, 2.0).to(torch.{dtype})"
        if dtype == "bool":
            return f"torch.randint(0, 2, {shape}).bool()"
        if dtype not in INTEGER_DTYPES:
            raise ProblemError(f"torch cannot draw its inputs of type {dtype}")
        low, high = {"int8": ("-128", "128"), "uint8": ("0", "256")}.get(dtype, ("0", self._bound))
        return f"torch.randint({low}, {high}, {shape}, dtype=torch.{dtype})"


def _generated(name: str, shape: str, dtype: str, generator: Mapping[str, Any]) -> str:
    """Returns the expression for an input drawn by a workload's generator.

    Raises ProblemError.
    """
    settings = {
        "low": 0,
        "high": 1,
        "mean": 0.0,
        "std": 1.0,
        "temperature": 1.0,
        "axis": -1,
        **generator,
    }
    drawn = {
        "uniform": "(torch.rand({shape}) * ({high} - {low}) + {low})",
        "normal": "(torch.randn({shape}) * {std} + {mean})",
        "integer": "torch.randint({low}, {high}, {shape})",
        "simplex": "torch.softmax(torch.randn({shape}) / {temperature}, dim={axis})",
    }.get(str(generator.get("type")))
    if drawn is None:
        raise ProblemError(
            f"its input {name} is drawn by a generator that is not known here: {generator.get('type')}"
        )
    return f"{drawn.format(shape=shape, **settings)}.to(torch.{dtype})"
