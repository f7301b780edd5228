"""Layers of real models, drafted and timed: strict (every product in own kernels) and share (a library's products and
attention beside own kernels), over eager and over torch.compile, all as CUDA graphs in the same call.

    PYTHONPATH=src:. python3 -m bench.layers --device cuda:0 [--only REGEX] [--modes strict,share] [--sizes full]
        [--keep FOLDER] [--out bench/results/layers.md]

The layers are classes of the installed transformers and torch with random weights, described in layers_sources.py. On
a GPU a draft is right where its largest error against the layer in float64 is at most twice that of eager, plus one
part in a thousand of the largest value. On a CPU (`--device cpu`) nothing is timed: drafts are judged at tiny sizes
under Triton's interpreter. A line is printed, and the table written again, after every layer.
"""

from __future__ import annotations

import argparse
import functools
import platform
import re
import statistics
import sys
import time
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.layers_sources import LAYERS
from kernelwright.agent.solve.drafting import Drafter
from kernelwright.policies.inductor.draft import Draft, DraftMode
from kernelwright.tools.problem import Problem

if TYPE_CHECKING:
    import torch

RULES = {DraftMode.STRICT: "strict", DraftMode.SHARE: "share:0.001"}
REPLAYS = 40
"""Timed replays of each graph; the median counts."""
WARM_UP_CALLS = 3
FLUSHED_BYTES = 256 << 20
"""Bytes written between two replays: more than the second-level cache of an H200 holds."""
HEAD = (
    "| layer | mode | correct | eager ms | torch.compile ms | draft ms | over eager | over torch.compile | kernels |"
    " left to torch | seconds |\n|---|---|---|---|---|---|---|---|---|---|---|\n"
)


@dataclass
class LayerRow:
    """One layer in one mode."""

    layer: str
    mode: DraftMode
    draft: Draft = field(default_factory=Draft)
    correct: str = ""
    """`yes`, `no: ...`, or why there is no draft."""
    eager_ms: float = 0.0
    compiled_ms: float = 0.0
    draft_ms: float = 0.0
    kernels: int = 0
    left_to_torch: tuple[str, ...] = ()
    seconds: float = 0.0

    def cells(self) -> list[str]:
        """Returns the cells of the row, in the order of HEAD."""
        times = [
            f"{ms:.4f}" if ms else "" for ms in (self.eager_ms, self.compiled_ms, self.draft_ms)
        ]
        ratios = [
            f"{ms / self.draft_ms:.2f}" if self.draft_ms and ms else ""
            for ms in (self.eager_ms, self.compiled_ms)
        ]
        names = ", ".join(dict.fromkeys(self.left_to_torch))
        seconds = f"{self.seconds:.0f}"
        return [
            self.layer,
            self.mode.value,
            self.correct,
            *times,
            *ratios,
            str(self.kernels),
            names,
            seconds,
        ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the bench. Returns 0, or 1 where a draft is missing or wrong."""
    options = _options(arguments)
    chosen = [name for name in LAYERS if re.search(options.only, name)]
    modes = [DraftMode(mode) for mode in options.modes.split(",")]
    rows: list[LayerRow] = []
    print(f"{len(chosen)} layers on {_machine(options.device)}", flush=True)
    with Drafter(seconds=options.draft_seconds) as drafter:
        for name in chosen:
            rows += _rows_of_layer(name, modes, drafter, options)
            if options.out:
                _write(Path(options.out), rows, options.device)
    return int(any(row.correct != "yes" for row in rows))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench.layers", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--device", default="cpu", help="cpu, or cuda:N to time as well")
    parser.add_argument("--only", default="", help="regular expression over names of layers")
    parser.add_argument("--modes", default="strict,share", help="strict, share or both")
    parser.add_argument(
        "--sizes",
        default="",
        choices=["", "full", "tiny"],
        help="default: full on a GPU, else tiny",
    )
    parser.add_argument("--draft-seconds", type=float, default=90.0, help="seconds for one draft")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--keep", default="", help="folder that drafts are written to")
    parser.add_argument("--out", default="", help="Markdown file that the table is written to")
    return parser.parse_args(arguments)


def _rows_of_layer(
    name: str, modes: list[DraftMode], drafter: Drafter, options: argparse.Namespace
) -> list[LayerRow]:  # fmt: skip
    """Drafts one layer in every mode, checks and times the drafts, and prints a line for each."""
    on_gpu = options.device != "cpu"
    sizes = options.sizes or ("full" if on_gpu else "tiny")
    problem = Problem(name=name, source=LAYERS[name].source(tiny=sizes == "tiny"))
    rows = []
    for mode in modes:
        start = time.monotonic()
        row = LayerRow(name, mode)
        row.draft = drafter.draft(problem, RULES[mode], tf32=on_gpu, split=on_gpu)
        _note_draft(row, options.keep)
        row.seconds = time.monotonic() - start
        rows.append(row)
    drafted = [row for row in rows if row.draft.usable]
    start = time.monotonic()
    try:
        if on_gpu:
            _measure(drafted, problem, options)
        else:
            _judge(drafted, problem)
    except Exception as error:  # the next layer is measured all the same
        _note_failure(drafted, error)
    for row in rows:
        row.seconds += (time.monotonic() - start) / len(rows)
        print("| " + " | ".join(row.cells()) + " |", flush=True)
    return rows


def _note_draft(row: LayerRow, folder: str) -> None:
    row.kernels, row.left_to_torch = row.draft.kernels, row.draft.library_calls
    if not row.draft.usable:
        row.correct = f"no draft: {row.draft.refused[:160]}"
    elif folder:
        path = Path(folder) / f"{row.layer}_{row.mode.value}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(row.draft.source, encoding="utf-8")


def _note_failure(rows: Sequence[LayerRow], error: Exception) -> None:
    first_line = (str(error).strip().splitlines() or [""])[0]
    for row in rows:
        row.correct = row.correct or f"no: {type(error).__name__}: {first_line[:160]}"


def _judge(rows: list[LayerRow], problem: Problem) -> None:
    """Judges drafts at tiny sizes, without a GPU."""
    from kernelwright.tools.evaluation.pipeline import Evaluator
    from kernelwright.tools.options import Options

    with Evaluator(device="cpu") as evaluator:
        for row in rows:
            # The share of operations at tiny sizes says nothing of the share at full size. Configurations of
            # transformers turn sizes into numbers, so that a draft is for one width: no other sizes are drawn.
            rule = "report" if row.mode is DraftMode.SHARE else "strict"
            report = evaluator.evaluate(
                problem, row.draft.source, Options(seed=1, sizes=0, own_work=rule)
            )
            row.correct = "yes" if report.correct else f"no: {report.explanation[:160]}"


# ------------------------------------------------------------------ on a GPU
def _measure(rows: list[LayerRow], problem: Problem, options: argparse.Namespace) -> None:
    """Checks drafts at full size, and times them beside eager and torch.compile."""
    import torch

    torch.manual_seed(0)
    device = torch.device(options.device)
    with torch.no_grad(), torch.cuda.device(device):
        reference = _module(problem.source)
        model = reference.Model(*reference.get_init_inputs()).to(device).eval()
        inputs = [
            value.to(device) if isinstance(value, torch.Tensor) else value
            for value in reference.get_inputs()
        ]
        calls: dict[str, Callable[[], Any]] = {"eager": lambda: model(*inputs)}
        for row in rows:
            try:
                new = (
                    _module(row.draft.source)
                    .ModelNew(*reference.get_init_inputs())
                    .to(device)
                    .eval()
                )
                new.load_state_dict(model.state_dict())
                row.correct = _compare(model, new, inputs)
                calls[row.mode.value] = functools.partial(new, *inputs)
            except Exception as error:  # the draft of the other mode is timed all the same
                _note_failure([row], error)
        if not options.no_compile:
            torch._dynamo.reset()
            calls["compiled"] = functools.partial(torch.compile(model), *inputs)
        times = _times(calls)
    for row in rows:
        row.eager_ms, row.compiled_ms = times["eager"], times.get("compiled", 0.0)
        row.draft_ms = times.get(row.mode.value, 0.0)


def _module(source: str) -> Any:
    """Executes a file of ours as a module whose source Triton can read."""
    import importlib.util
    import tempfile

    path = Path(tempfile.mkdtemp(prefix="layers-")) / "layer.py"
    path.write_text(source, encoding="utf-8")
    specification = importlib.util.spec_from_file_location(f"layer_{time.monotonic_ns()}", path)
    assert specification is not None
    assert specification.loader is not None
    module: types.ModuleType = importlib.util.module_from_spec(specification)
    sys.modules[module.__name__] = module
    specification.loader.exec_module(module)
    return module


def _compare(model: Any, new: Any, inputs: list[Any]) -> str:
    """Returns `yes`, or the errors of the draft and of eager against the layer in float64."""
    import copy

    import torch

    wide = copy.deepcopy(model).double()
    exact = wide(
        *[
            v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v
            for v in inputs
        ]
    ).float()
    eager, made = model(*inputs).float(), new(*inputs).float()
    largest = exact.abs().max().item()
    allowed = 2 * (eager - exact).abs().max().item() + 1e-3 * largest
    error = (made - exact).abs().max().item()
    if made.shape == exact.shape and error <= allowed:
        return "yes"
    return f"no: error {error:.3g}, {allowed:.3g} allowed, largest value {largest:.3g}"


def _times(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Returns the median milliseconds of each call as a CUDA graph; the graphs are replayed in turn, so that a drift of
    the clock meets all of them.
    """
    import torch

    graphs = {name: _captured(call) for name, call in calls.items()}
    flushed = torch.empty(FLUSHED_BYTES, dtype=torch.int8, device="cuda")
    samples: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(REPLAYS):
        for name, graph in graphs.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            flushed.zero_()
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            samples[name].append(begin.elapsed_time(end))
    return {name: statistics.median(values) for name, values in samples.items()}


def _captured(call: Callable[[], Any]) -> torch.cuda.CUDAGraph:
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP_CALLS):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph


# ------------------------------------------------------------------ the table
def _machine(device: str) -> str:
    import torch
    import triton

    versions = f"Python {platform.python_version()}, torch {torch.__version__}, Triton {triton.__version__}"
    return f"{'a CPU' if device == 'cpu' else torch.cuda.get_device_name(device)}, {versions}"


def _write(path: Path, rows: list[LayerRow], device: str) -> None:
    date = time.strftime("%Y-%m-%d")
    command = f"python -m bench.layers --device {device}"
    lines = "".join("| " + " | ".join(row.cells()) + " |\n" for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"# Layers of real models\n\n`{command}`, {_machine(device)}, {date}\n\n{HEAD}{lines}{_means(rows)}",
        encoding="utf-8",
    )


def _means(rows: list[LayerRow]) -> str:
    """Returns a line with the geometric mean over torch.compile of each mode, and of the faster mode of each layer."""
    right = [row for row in rows if row.draft_ms and row.compiled_ms and row.correct == "yes"]
    if not right:
        return ""
    groups = {
        mode.value: [r.compiled_ms / r.draft_ms for r in right if r.mode is mode]
        for mode in DraftMode
    }
    names = dict.fromkeys(row.layer for row in right)
    groups["the faster"] = [
        max(r.compiled_ms / r.draft_ms for r in right if r.layer == name) for name in names
    ]
    words = [
        f"{group} {statistics.geometric_mean(v):.2f} ({len(v)})" for group, v in groups.items() if v
    ]
    return f"\nGeometric mean over torch.compile: {', '.join(words)}.\n"


if __name__ == "__main__":
    sys.exit(main())
