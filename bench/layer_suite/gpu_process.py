"""Checks and times one layer on a GPU, in a process of its own: a kernel that reads an illegal address costs one layer.

The process prepares everything (builds the layer, compiles, captures CUDA graphs), says that it is ready, and waits for
its turn to time, so that no other process uses the GPU meanwhile.
"""

from __future__ import annotations

import copy
import functools
import signal
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from bench.layer_suite.layer import Layer, LayerSize
from bench.layer_suite.rows import CORRECT, LayerRow
from kernelwright.policies.inductor.draft import Draft, DraftMode

if TYPE_CHECKING:
    import torch

REPLAYS = 40
"""Timed replays of each graph; the median counts."""
WARM_UP_CALLS = 3
FLUSHED_BYTES = 256 << 20
"""Bytes written between two replays: more than the second-level cache of an H200 holds."""
TURN = "time"
"""Message that lets a process time its graphs."""

Call = Callable[[], Any]
RowKey = tuple[LayerSize, DraftMode]


class CompileTimeout(Exception):
    """torch.compile took longer than its limit."""


def measure_layer(
    connection: Connection, layer: Layer, rows: dict[RowKey, LayerRow], drafts: dict[RowKey, Draft], device: str,
    compile_seconds: int, autotune: bool, profile: bool,
) -> None:  # fmt: skip
    """Sends the rows twice: checked, and timed after the message TURN."""
    import torch

    torch.manual_seed(0)
    graphs: dict[LayerSize, dict[str, torch.cuda.CUDAGraph]] = {}
    with torch.no_grad(), torch.cuda.device(device):
        calls: dict[LayerSize, dict[str, Call]] = {}
        for size in dict.fromkeys(size for size, _ in rows):
            calls[size] = _calls_of_size(layer, size, rows, drafts, device)
            connection.send(rows)
        graphs = {size: _captured_graphs(size_calls) for size, size_calls in calls.items()}
        for size, size_calls in calls.items():
            compiled = _compiled_calls(size_calls["eager"], compile_seconds, autotune)
            graphs[size].update(_captured_graphs(compiled))
            size_calls.update(compiled)
            connection.send(rows)
        connection.send("ready")
        if connection.recv() != TURN:
            return
        for size, size_graphs in graphs.items():
            milliseconds = median_milliseconds(size_graphs)
            for key in [key for key in rows if key[0] is size]:
                rows[key] = rows[key].with_(milliseconds=_of_mode(milliseconds, key[1]))
        connection.send(rows)
        for size, size_calls in calls.items() if profile else ():
            launches = {name: launch_milliseconds(call) for name, call in size_calls.items()}
            for key in [key for key in rows if key[0] is size]:
                rows[key] = rows[key].with_(launches=_of_mode(launches, key[1]))
        connection.send(rows)
    connection.send("done")


def _of_mode(values: dict[str, Any], mode: DraftMode) -> dict[str, Any]:
    """Returns the values of the baselines, and that of the mode's draft as `draft`."""
    modes = {other.value for other in DraftMode}
    chosen = {name: value for name, value in values.items() if name not in modes}
    if mode.value in values:
        chosen["draft"] = values[mode.value]
    return chosen


def launch_milliseconds(call: Call) -> dict[str, float]:
    """Returns the milliseconds of each kernel that a call launches, by name."""
    import torch

    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        call()
        torch.cuda.synchronize()
    events = [event for event in profile.key_averages() if event.device_time_total]
    return {event.key[:80]: round(event.device_time_total / 1000, 4) for event in events}


def _calls_of_size(
    layer: Layer,
    size: LayerSize,
    rows: dict[RowKey, LayerRow],
    drafts: dict[RowKey, Draft],
    device: str,
) -> dict[str, Call]:
    """Returns calls of the layer and of its correct drafts, and writes into the rows whether drafts are correct."""
    import torch

    problem = _module(layer.source(size), f"{layer.name}_{size}")
    with torch.device(device):
        model = problem.Model(*problem.get_init_inputs()).eval()
        inputs = problem.get_inputs()
    calls: dict[str, Call] = {"eager": functools.partial(model, *inputs)}
    for key in [key for key in rows if key[0] is size and drafts[key].usable]:
        start = time.monotonic()
        try:
            module = _module(drafts[key].source, f"{layer.name}_{size}_{key[1]}")
            with torch.device(device):
                candidate = module.ModelNew(*problem.get_init_inputs()).eval()
            candidate.load_state_dict(model.state_dict())
            candidate(*inputs)
            torch.cuda.synchronize()
            first_call_seconds = time.monotonic() - start
            correct = _compare(model, candidate, inputs)
            rows[key] = rows[key].with_(correct=correct, first_call_seconds=first_call_seconds)
            calls[key[1].value] = functools.partial(candidate, *inputs)
        except Exception as error:  # the draft of the other mode is timed all the same
            first_line = (str(error).strip().splitlines() or [""])[0].replace("|", "/")
            rows[key] = rows[key].with_(correct=f"no: {type(error).__name__}: {first_line[:160]}")
    return calls


def _compiled_calls(eager: Call, seconds: int, autotune: bool) -> dict[str, Call]:
    """Returns the call compiled by torch, and by its longest search for kernels if asked for.

    A compilation that fails or exceeds its seconds has no call.
    """
    import torch

    assert isinstance(eager, functools.partial)
    compiled: dict[str, Call] = {}
    for name, mode in (("compile", None), ("max-autotune", "max-autotune-no-cudagraphs")):
        if name == "max-autotune" and not autotune:
            continue
        signal.signal(signal.SIGALRM, _raise_timeout)
        signal.alarm(seconds)
        try:
            call = functools.partial(
                torch.compile(eager.func, mode=mode, dynamic=False), *eager.args
            )
            call()
            torch.cuda.synchronize()
            compiled[name] = call
        except (
            Exception
        ) as error:  # torch's failures are many, and cost the layer its baseline alone
            print(f"{name}: {type(error).__name__}: {str(error)[:120]}", flush=True)
        finally:
            signal.alarm(0)
    return compiled


def _raise_timeout(number: int, frame: object) -> None:
    raise CompileTimeout("torch.compile exceeds its time")


def _module(source: str, name: str) -> ModuleType:
    """Executes a file as a module whose source Triton can read."""
    import importlib.util
    import sys
    import tempfile

    path = Path(tempfile.mkdtemp(prefix="layer-suite-")) / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    specification = importlib.util.spec_from_file_location(name, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[module.__name__] = module
    specification.loader.exec_module(module)
    return module


def _compare(model: Any, candidate: Any, inputs: list[torch.Tensor]) -> str:
    """Returns `yes` where the largest error against the layer in float64 is at most twice that of eager, plus
    one part in a thousand of the largest value; else the errors.
    """
    wide = copy.deepcopy(model).double()
    exact = wide(*[tensor.double() for tensor in inputs]).float()
    eager, output = model(*inputs).float(), candidate(*inputs).float()
    largest = exact.abs().max().item()
    allowed = 2 * (eager - exact).abs().max().item() + 1e-3 * largest
    error = (output - exact).abs().max().item() if output.shape == exact.shape else float("nan")
    if error <= allowed:
        return CORRECT
    return f"no: error {error:.3g}, {allowed:.3g} allowed, largest value {largest:.3g}"


def _captured_graphs(calls: dict[str, Call]) -> dict[str, torch.cuda.CUDAGraph]:
    """Captures calls as CUDA graphs, but for those that cannot be captured, such as a layer that waits for the GPU."""
    graphs = {}
    for name, call in calls.items():
        try:
            graphs[name] = _captured_graph(call)
        except RuntimeError as error:
            print(f"{name} cannot be captured: {str(error)[:120]}", flush=True)
    return graphs


def _captured_graph(call: Call) -> torch.cuda.CUDAGraph:
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


def median_milliseconds(graphs: dict[str, torch.cuda.CUDAGraph]) -> dict[str, float]:
    """Returns the median time of each graph; graphs are replayed in turn, so that a drift of the clock meets all."""
    import torch

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
