"""What a model and a candidate hold from call to call, by name: parameters and buffers."""

from __future__ import annotations

from typing import Any

from kernelwright.tools.tracing.trace import Trace


def state_of(model: Any) -> dict[str, Any]:
    """Parameters and buffers by dotted name."""
    return dict(model.named_parameters()) | dict(model.named_buffers())


def listed_state(trace: Trace) -> list[dict[str, Any]]:
    """The candidate's parameters and buffers as `tools.weights.match` takes them."""
    return [
        {"name": n, "kind": "parameter" if n in trace.parameters else "buffer", "shape": list(trace.shapes.get(n, ())),
        "dtype": trace.dtypes.get(n, "")}
        for n in trace.state
    ]  # fmt: skip


def buffers_of(model: Any, trace: Trace) -> dict[str, str]:
    """Of a reference without parameters: buffers that both have under one name and shape."""
    ours = {n: (tuple(t.shape), str(t.dtype).removeprefix("torch.")) for n, t in model.named_buffers()}
    return {n: n for n in trace.state if ours.get(n) == (tuple(trace.shapes.get(n, ())), trace.dtypes.get(n))}
