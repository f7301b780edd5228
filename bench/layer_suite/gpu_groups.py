"""Measures layers on a GPU in groups: the processes of a group compile side by side, then time one after the other."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from bench.layer_suite.gpu_process import TURN, RowKey, measure_layer
from bench.layer_suite.layer import Layer
from bench.layer_suite.rows import LayerRow
from kernelwright.policies.inductor.draft import Draft

TIMING_SECONDS = 20.0
"""Limit of one layer's timing."""


@dataclass
class MeasuredLayer:
    """A layer, its drafts, and its rows so far."""

    layer: Layer
    rows: dict[RowKey, LayerRow]
    drafts: dict[RowKey, Draft]
    process: BaseProcess | None = None
    connection: Connection | None = None
    ready: bool = False


@dataclass(frozen=True)
class GroupLimits:
    """Limits of a group of layers."""

    device: str
    processes: int
    """Layers that are prepared side by side."""
    prepare_seconds: float
    compile_seconds: int
    autotune: bool
    profile: bool


def measure_in_groups(
    layers: list[MeasuredLayer], limits: GroupLimits, report: Callable[[MeasuredLayer], None]
) -> None:
    """Measures all layers, and reports each when its rows are complete or its time is over."""
    for first in range(0, len(layers), limits.processes):
        group = layers[first : first + limits.processes]
        for measured in group:
            _start(measured, limits)
        _prepare(group, time.monotonic() + limits.prepare_seconds)
        for measured in group:
            if measured.ready:
                _time(measured)
            _stop(measured)
            report(measured)


def _start(measured: MeasuredLayer, limits: GroupLimits) -> None:
    # Forked: torch and transformers are imported once, before any process uses the GPU.
    context = multiprocessing.get_context("fork")
    measured.connection, theirs = context.Pipe()
    arguments = (
        theirs, measured.layer, measured.rows, measured.drafts, limits.device, limits.compile_seconds,
        limits.autotune, limits.profile,
    )  # fmt: skip
    measured.process = context.Process(target=measure_layer, args=arguments)
    measured.process.start()
    theirs.close()


def _prepare(group: list[MeasuredLayer], deadline: float) -> None:
    """Receives rows until every process is ready, has ended, or the deadline has passed."""
    from multiprocessing.connection import wait

    waiting = {measured.connection: measured for measured in group}
    while waiting and time.monotonic() < deadline:
        for connection in wait(list(waiting), timeout=max(0.0, deadline - time.monotonic())):
            measured = waiting[connection]
            if not _receive(measured) or measured.ready:
                del waiting[connection]


def _receive(measured: MeasuredLayer) -> bool:
    """Receives one message. Returns False after the last."""
    assert measured.connection is not None
    try:
        message = measured.connection.recv()
    except (EOFError, ConnectionResetError):
        return False
    if isinstance(message, dict):
        measured.rows = message
    measured.ready = measured.ready or message == "ready"
    return message != "done"


def _time(measured: MeasuredLayer) -> None:
    assert measured.connection is not None
    try:
        measured.connection.send(TURN)
    except (BrokenPipeError, ConnectionResetError):
        return
    deadline = time.monotonic() + TIMING_SECONDS
    while measured.connection.poll(max(0.0, deadline - time.monotonic())):
        if not _receive(measured):
            return


def _stop(measured: MeasuredLayer) -> None:
    assert measured.process is not None
    measured.process.join(0.1)
    if measured.process.is_alive():
        measured.process.kill()
    measured.process.join()
    for key, row in measured.rows.items():
        if not row.correct:
            code = measured.process.exitcode
            reason = "not ready in time" if code in (0, -9) else f"its process ended with {code}"
            measured.rows[key] = row.with_(correct=f"no: {reason}")
