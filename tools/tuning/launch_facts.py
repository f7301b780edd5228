"""Facts about the launches of a trace at the problem's own size, for tuning."""

from __future__ import annotations

from typing import Any

from kernelwright.tools.report import Value
from kernelwright.tools.trace.trace import Choice, Launch, Trace, Traced


class TracedLaunchFacts(Value):
    """Grid, types, constants and options of a launch."""

    function: str
    """The name of the kernel."""
    kernel: str
    """The kernel's key in the trace."""
    grid: tuple[int, int, int]
    constants: dict[str, Any] = {}
    """Values of constexprs by name."""
    options: dict[str, Any] = {}
    """Options of the launch: num_warps, num_stages ..."""
    numbers: dict[str, int] = {}
    """Integer arguments."""
    types: dict[str, str] = {}
    """Parameter -> Triton's type: "*fp32"."""

    @property
    def programs(self) -> int:
        """Returns the number of programs of the grid."""
        x, y, z = self.grid
        return x * y * z


def launches_at(traced: Traced, index: int = 0) -> tuple[TracedLaunchFacts, ...]:
    """Returns the launches of a call, in order; for an autotuned launch its first configuration.
    Empty without a trace.
    """
    trace = traced.traces[index] if index < len(traced.traces) else None
    if trace is None:
        return ()
    return tuple(_facts(step, traced) for step in _steps(trace) if isinstance(step, Launch))


def _steps(trace: Trace) -> list[Any]:
    steps = trace.first if trace.later is None else trace.later
    flat: list[Any] = []
    for step in steps:
        flat += (
            (step.alternatives[0] if step.alternatives else ())
            if isinstance(step, Choice)
            else (step,)
        )
    return flat


def _facts(launch: Launch, traced: Traced) -> TracedLaunchFacts:
    kernel = traced.kernels[launch.kernel]
    names = list(kernel.signature)
    constants = {
        names[path[0]]: value
        for path, value in kernel.constants
        if len(path) == 1 and isinstance(path[0], int) and path[0] < len(names)
    }
    numbers = {n: v for n, v in (*constants.items(), *launch.args.items()) if type(v) is int}
    return TracedLaunchFacts(
        function=traced.functions[kernel.function].name,
        kernel=launch.kernel,
        grid=launch.grid,
        constants=constants,
        options=dict(kernel.options),
        numbers=numbers,
        types={n: t for n, t in kernel.signature.items() if isinstance(t, str)},
    )
