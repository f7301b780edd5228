"""Hardware counters by ncu and out-of-bounds accesses by compute-sanitizer: on demand, limited in
time, never fatal.

Both run `tools.tracing.profiled_calls` behind a command prefix which sandboxes the process. Their
results come through a file, because the candidate may print anything. Only an error found by
memcheck enters a verdict.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kernelwright
from kernelwright.tools import wire
from kernelwright.tools.report import Failure, Fault, Number, SourceLine, Value, clean_text
from kernelwright.worker_process import ChildProcess

if TYPE_CHECKING:
    import torch

NCU_PLACES = ("usr/local/cuda/bin/ncu", "opt/nvidia/nsight-compute/*/ncu")
SANITIZER_PLACES = (
    "usr/local/cuda*/bin/compute-sanitizer",
    "usr/local/cuda*/compute-sanitizer/compute-sanitizer",
)
METRICS = {
    "gpu__time_duration.sum": "ncu_time",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "dram_percent",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "sm_percent",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "occupancy_percent",
    "lts__t_sector_hit_rate.pct": "l2_hit_percent",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": "tensor_percent",
}
"""Metrics by ncu's names. If a GPU lacks any of them, a second run requests the others."""
WEIGHT_METRIC = "gpu__time_duration.sum"
MAX_PROFILED_LAUNCHES = 20
ERRORS_FOUND_EXIT_CODE = 86
"""Exit code that the sanitizer is told to give when it finds something."""
_SANITIZER_PLACE = re.compile(
    r"^=+\s+at (?P<kernel>[^\n+(]+?)(?:\(.*?\))?(?:\+0x[0-9a-f]+)?(?: in (?P<file>[^\n]+?):(?P<line>\d+))?$",
    re.M,
)
_SANITIZER_ERROR = re.compile(
    r"^=+ (Invalid __\w+__ (?:read|write|atomic)[^\n]*|Misaligned [^\n]*|Invalid [^\n]*)$", re.M
)


class CounterRun(Value):
    """The result of a run under a profiling tool."""

    metrics: dict[str, Number] = {}
    """Percent of the peak, averaged over the candidate's launches by their time."""
    failure: Failure | None = None
    note: str = ""
    """Reason of a missing result, in one line."""


def find_tool(name: str, patterns: Iterable[str]) -> str | None:
    """Finds a tool on PATH, else the newest of `places`, globs under /."""
    return shutil.which(name) or next(
        (str(p) for pattern in patterns for p in sorted(Path("/").glob(pattern), reverse=True)),
        None,
    )


def call_spec(
    source: Path, init: Sequence[Any], inputs: Sequence[Any], device: str
) -> dict[str, Any]:
    """Returns the description of a call that `tools.tracing.profiled_calls` reads: arguments by
    shape, dtype and range, never by content. init: the constructor's arguments.
    """
    return {
        "source": str(source),
        "device": device,
        "init": wire.describe(list(init), _described),
        "inputs": wire.describe(list(inputs), _described),
    }


def _described(tensor: torch.Tensor) -> dict[str, Any]:
    import torch

    timing_counters = {
        "shape": list(tensor.shape),
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "low": 0,
        "high": 1,
    }
    if tensor.numel() and tensor.dtype != torch.bool:
        low, high = (v.item() for v in (tensor.amin(), tensor.amax()))
        timing_counters |= {"low": low, "high": high}
    return timing_counters


def hardware_counters(
    spec: Path,
    *,
    scratch: Path,
    prefix: Sequence[str] = (),
    seconds: float = 60.0,
    ncu: str | None = None,
) -> CounterRun:
    """Counts hardware events of a call under ncu. spec: file with the JSON of `call_spec`;
    scratch: folder for ncu's output.
    """
    ncu = ncu or find_tool("ncu", NCU_PLACES)
    if ncu is None:
        return CounterRun(note="ncu is not installed: no hardware counters")
    names = list(METRICS)
    note = ""
    for metric_names in (names, names[:-1]):
        log = scratch / f"ncu_{len(metric_names)}.csv"
        options = [
            "--csv",
            "--page",
            "raw",
            "--clock-control",
            "none",
            "--profile-from-start",
            "off",
            "--target-processes",
            "all",
        ]
        options += [
            "--launch-count",
            str(MAX_PROFILED_LAUNCHES),
            "--metrics",
            ",".join(metric_names),
            "--log-file",
            str(log),
        ]
        code, printed = _run([*prefix, ncu, *options, *_once(spec)], scratch, seconds)
        if code is None:
            return CounterRun(note=f"ncu took over {seconds:.0f} s: no hardware counters")
        text = log.read_text(errors="replace") if log.is_file() else ""
        if metrics := read_counters(text):
            return CounterRun(metrics=metrics)
        note = _last_error(text) or _last_error(printed) or f"exit code {code}"
    return CounterRun(note=clean_text(f"ncu gives no counters: {note}", 200))


def read_counters(text: str) -> dict[str, float]:
    """Reads ncu's raw CSV page (a header, a row of units, a row for each launch) and averages the
    counters, weighted by the launches' times.
    """
    lines = [line for line in text.splitlines() if line.startswith('"')]
    rows = list(csv.DictReader(lines))
    launches = [(w, row) for row in rows if (w := _number(row.get(WEIGHT_METRIC))) is not None]
    total = sum(w for w, _ in launches)
    values_by_name: dict[str, float] = {}
    for name, short in METRICS.items():
        values = [(w, v) for w, row in launches if (v := _number(row.get(name))) is not None]
        if name != WEIGHT_METRIC and values and total > 0:
            values_by_name[short] = sum(w * v for w, v in values) / sum(w for w, _ in values)
    return values_by_name


def _number(text: str | None) -> float | None:
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None


def _last_error(text: str) -> str:
    error_lines = [
        line.strip("= ") for line in text.splitlines() if "ERROR" in line or "Error" in line
    ]
    return error_lines[-1] if error_lines else ""


def memory_check(
    spec: Path,
    *,
    scratch: Path,
    prefix: Sequence[str] = (),
    seconds: float = 120.0,
    sanitizer: str | None = None,
) -> CounterRun:
    """compute-sanitizer's memcheck over the candidate's calls: OUT_OF_BOUNDS with the kernel and
    the line, or nothing found.
    """
    sanitizer = sanitizer or find_tool("compute-sanitizer", SANITIZER_PLACES)
    if sanitizer is None:
        return CounterRun(
            note="compute-sanitizer is not installed: out-of-bounds accesses are looked for by margins only"
        )
    log = scratch / "memcheck.log"
    options = [
        "--tool",
        "memcheck",
        "--error-exitcode",
        str(ERRORS_FOUND_EXIT_CODE),
        "--print-limit",
        "5",
        "--log-file",
        str(log),
    ]
    environment = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    code, _ = _run([*prefix, sanitizer, *options, *_once(spec)], scratch, seconds, environment)
    if code is None:
        return CounterRun(note=f"compute-sanitizer took over {seconds:.0f} s: nothing is known")
    text = log.read_text(errors="replace") if log.is_file() else ""
    failure = read_memcheck(text, spec)
    return CounterRun(
        failure=failure,
        note="" if failure or code == 0 else f"compute-sanitizer ended with exit code {code}",
    )


def read_memcheck(text: str, spec: Path | None = None) -> Failure | None:
    """Returns the first finding of memcheck's log. spec: names the candidate's file, so that the line can be shown."""
    error = _SANITIZER_ERROR.search(text)
    if error is None:
        return None
    at = _SANITIZER_PLACE.search(text, error.end())
    kernel = at["kernel"].strip() if at else "an unknown kernel"
    line = int(at["line"]) if at and at["line"] else None
    location = f", line {line}" if line else ""
    message = clean_text(
        f"{error[1].strip()} in {kernel}{location}: a mask is missing or an offset is wrong", 300
    )
    return Failure(fault=Fault.OUT_OF_BOUNDS, message=message, where=_source_line(spec, line))


def _source_line(spec: Path | None, line: int | None) -> SourceLine | None:
    if line is None:
        return None
    text = ""
    if spec is not None and spec.is_file():
        lines = (
            Path(json.loads(spec.read_text())["source"]).read_text(errors="replace").splitlines()
        )
        text = clean_text(lines[line - 1], 300) if 0 < line <= len(lines) else ""
    return SourceLine(line=line, text=text)


def _once(spec: Path) -> list[str]:
    return [sys.executable, "-m", "kernelwright.tools.tracing.profiled_calls", str(spec)]


def _run(
    command: Sequence[str], scratch: Path, seconds: float, extra: Mapping[str, str] | None = None
) -> tuple[int | None, str]:
    """Runs a command with a scrubbed environment; returns its exit code and the tail of its
    output.

    The exit code is None if the time limit passed and the process group was killed.
    """
    root = str(Path(kernelwright.__file__).parents[1])
    variables = {
        k: v
        for k in ("PATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES")
        if (v := os.environ.get(k))
    }
    environment = {
        **variables,
        "PYTHONPATH": root,
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        **(extra or {}),
    }
    output_path = scratch / "said.txt"
    with output_path.open("wb") as out:
        try:
            with ChildProcess(
                command, environment=environment, folder=scratch, output=out, errors=out
            ) as child:
                ended = child.wait(seconds)
        except OSError as error:
            return 127, str(error)
    code = child.exit_code if ended else None
    with output_path.open("rb") as file:
        file.seek(max(0, output_path.stat().st_size - 4096))
        return code, file.read().decode(errors="replace")
