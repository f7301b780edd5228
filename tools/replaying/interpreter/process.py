"""A replaying process on a CPU: kernels under Triton's interpreter, allocations in an arena."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernelwright.tools.compiling.text.constants import fields_of
from kernelwright.tools.compiling.text.kernel_text import Rebuilt
from kernelwright.tools.replaying.interpreter.arena import Arena
from kernelwright.tools.replaying.interpreter.comparisons.constant_results import observation
from kernelwright.tools.replaying.interpreter.comparisons.outcomes import outcomes
from kernelwright.tools.replaying.interpreter.extents import TensorTable
from kernelwright.tools.replaying.interpreter.launching import Interpreted
from kernelwright.tools.replaying.interpreter.patches import installation
from kernelwright.tools.replaying.replay import Replay
from kernelwright.tools.replaying.steps import Call
from kernelwright.tools.report import Failure
from kernelwright.tools.tensor_memory import POISON_BYTE
from kernelwright.tools.trace.trace import Function, Kernel, Traced

WARM_TEXT = """def warm(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + i, mask=i < n, other=0.0)
    b = tl.dot(a[:, None] + tl.zeros((BLOCK, BLOCK), tl.float32), a[None, :] + tl.zeros((BLOCK, BLOCK), tl.float32))
    c = tl.exp(a - tl.max(a, axis=0)) / tl.sum(b, axis=1) + tl.sigmoid(a)
    tl.store(y + i, c, mask=i < n)
    tl.atomic_add(y + i, c, mask=i < n)
"""
"""Kernel interpreted once in a zygote, so that forked processes find all lookups cached."""


def warm() -> None:
    """Prepares a zygote: imports the service, patches the interpreter, and interprets WARM_TEXT.
    Leaves no thread behind.
    """
    import importlib

    import torch

    importlib.import_module("kernelwright.tools.replaying.service")
    installation.install()
    installation.rewrite_device_functions()
    function = Function(name="warm", text=WARM_TEXT, names={"tl": {"triton": "triton.language"}})
    signature = {"x": "*fp32", "y": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    kernel = Kernel(function="warm", signature=signature, constants=(((3,), 16),))
    kernels = Interpreted(
        {"warm": kernel}, Rebuilt({"warm": function}, interpreted=True, folder=Path.cwd())
    )
    x = torch.ones(16)
    y = torch.ones(16)
    kernels.launch("warm", (2, 1, 1), {"x": x, "y": y, "n": 16}, {0: x, 1: y})


class OnCpu:
    """Replay device on a CPU (counterpart of OnGpu): interpreter and arena."""

    def __init__(self) -> None:
        installation.install()
        self._arena = Arena()
        self._kernels = Interpreted({}, Rebuilt({}, interpreted=True, folder=Path.cwd()))
        self._rebuilt: tuple[Any, Rebuilt] | None = None
        self._prepared = self._first = 0

    def open(self, traced: Traced, binaries: object) -> None:
        """Rebuilds the kernels of a trace; reuses those rebuilt from the same functions for
        another size.
        """
        before: Interpreted | None = self._kernels
        if self._rebuilt is None or self._rebuilt[0] != traced.functions:
            before = None
            outcomes.forget_comparisons()
            observation.forget_results()
            fields = fields_of(traced.kernels.values())
            rebuilt = Rebuilt(traced.functions, interpreted=True, folder=Path.cwd(), fields=fields)
            self._rebuilt = traced.functions, rebuilt
        self._kernels = Interpreted(traced.kernels, self._rebuilt[1], before)

    def stopwatch(self, replay: Replay, traced: Traced) -> Any:
        """Raises RuntimeError: nobody times an interpreter."""
        raise RuntimeError("there is no clock for interpreted kernels")

    def call_of_setup(self) -> Call:
        """Returns the call of the preparation, on an empty arena."""
        self._arena.reset(0, POISON_BYTE)
        self._kernels.begin_call(0)
        return Call(self._kernels.launch, self._arena, poison=POISON_BYTE)

    def prepared(self) -> None:
        """Keeps the memory of the preparation."""
        self._prepared = self._first = self._arena.mark()

    def call(self, replay: Replay, call_name: str, *, poison: int, shuffle: int) -> Call:
        """Returns a call of forward on memory above that of the preparation, and above the
        tensors which a first call left for later calls. shuffle: seed of the order of programs.
        """
        if call_name == "later" and replay.has_later:
            self._arena.reset(self._first, poison)
        else:
            replay.forget_first()
            self._arena.reset(self._prepared, poison)
        self._kernels.begin_call(shuffle)
        return Call(self._kernels.launch, self._arena, poison=poison, table=TensorTable)

    def called(self, replay: Replay, call_name: str) -> None:
        """Keeps the tensors which the first call left for later calls."""
        if replay.has_later and call_name != "later":
            self._first = self._arena.mark()

    def close(self) -> None:
        """Gives back the arena's memory, which the next trace uses; nothing else is held."""
        self._arena.reset(0, POISON_BYTE)

    def finish(self, activity: str = "a kernel") -> None:
        """Does nothing: nothing runs in the background."""

    def noted(self) -> dict[str, Any]:
        """Returns notes on reads outside of tensors and on undecidable behaviour, in at most 300
        characters each. A write outside ends the call at once.
        """
        return {
            "written_outside": "",
            "read_outside": "; ".join(sorted(set(self._kernels.read_outside)))[:300],
            "undecided": "; ".join(sorted(self._kernels.undecided))[:300],
        }

    def explained(self, error: BaseException, failure: Failure) -> tuple[Failure, bool]:
        """The failure as it is: no fault of a kernel ends this process."""
        return failure, False
