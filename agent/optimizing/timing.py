"""Times modules and models on a GPU: as they are, with kernels, and by torch.compile."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kernelwright.agent.optimizing.capture import ModuleCall, call_model
from kernelwright.tools.report import Value

if TYPE_CHECKING:
    import torch

WARMUP_MS = 25
"""Milliseconds of warm-up before a measurement."""
MEASURED_MS = 100
"""Milliseconds of a measurement."""


class Times(Value):
    """Median times in milliseconds on a GPU; None if not timed."""

    eager: float | None = None
    compiled: float | None = None
    """By torch.compile."""
    optimized: float | None = None
    """With kernels, in eager mode."""
    optimized_compiled: float | None = None
    """With kernels, by torch.compile."""

    @property
    def best(self) -> float | None:
        """The faster time with kernels."""
        return min(filter(None, (self.optimized, self.optimized_compiled)), default=None)

    @property
    def wins(self) -> bool:
        """Whether the kernels are faster than eager PyTorch and torch.compile."""
        baselines = [time for time in (self.eager, self.compiled) if time is not None]
        return self.best is not None and all(self.best < time for time in baselines)


def time_region(call: ModuleCall, patch: Callable[[torch.nn.Module], object]) -> Times:
    """Times a module on the arguments of its call. patch: replaces its forward; undone here."""
    module = call.module

    def run() -> Any:
        return module(*call.args, **call.kwargs)

    eager, compiled = _both(module, call.args, call.kwargs, run)
    patch(module)
    try:
        optimized, optimized_compiled = _both(module, call.args, call.kwargs, run)
    finally:
        del module.forward
    return Times(
        eager=eager,
        compiled=compiled,
        optimized=optimized,
        optimized_compiled=optimized_compiled,
    )


def time_models(model: torch.nn.Module, optimized: torch.nn.Module, inputs: Any) -> Times:
    """Times both models on the example inputs."""
    args, kwargs = ((), inputs) if isinstance(inputs, dict) else (tuple(inputs), {})
    eager, compiled = _both(model, args, kwargs, lambda: call_model(model, inputs))
    ours = _both(optimized, args, kwargs, lambda: call_model(optimized, inputs))
    return Times(eager=eager, compiled=compiled, optimized=ours[0], optimized_compiled=ours[1])


def _both(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], run: Callable[[], Any]
) -> tuple[float, float | None]:
    """Returns the times of a module in eager mode and under torch.compile; None if the latter
    fails.
    """
    import torch

    plain = _median(run)
    torch.compiler.reset()
    compiled = torch.compile(module)
    try:
        return plain, _median(lambda: compiled(*args, **kwargs))
    # torch.compile raises many kinds of errors for code it cannot compile.
    except Exception:
        return plain, None


def _median(run: Callable[[], Any]) -> float:
    import torch
    from triton.testing import do_bench

    with torch.no_grad():
        run()
        return float(do_bench(run, warmup=WARMUP_MS, rep=MEASURED_MS, return_mode="median"))
