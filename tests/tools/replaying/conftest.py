"""Traces written by hand, and the processes that replay them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch

from kernelwright.tools import wire
from kernelwright.tools.references.shared_tensors import Buffers, SharedTensor
from kernelwright.tools.replaying.replayer import Replayer, Reply
from kernelwright.tools.sandbox import ProcessKind, Zygote
from kernelwright.tools.trace.trace import Function, Kernel, Launch, Operator, Trace, Traced

TL = {"tl": {"triton": "triton.language"}}


class Writer:
    """Words for writing traces down."""

    @staticmethod
    def t(number: int) -> dict[str, int]:
        return {"t": number}

    @staticmethod
    def op(name: str, *args: Any, out: Any = None, **kwargs: Any) -> Operator:
        """`aten.NAME`, `default` where no overload is named. Whole numbers in `out` are tensors."""
        overload = name if "." in name else f"{name}.default"
        return Operator(
            op=f"aten.{overload}",
            args=args,
            kwargs=kwargs,
            out={"t": out} if type(out) is int else out,
        )

    @staticmethod
    def empty(number: int, *shape: int, dtype: str = "float32") -> Operator:
        where = {"dtype": {"dtype": dtype}, "device": {"device": "cuda"}, "pin_memory": False}
        return Operator(
            op="aten.empty.memory_format", args=(list(shape),), kwargs=where, out={"t": number}
        )

    @staticmethod
    def kernel(text: str, signature: dict[str, Any], **constants: Any) -> tuple[Function, Kernel]:
        text = textwrap.dedent(text).strip()
        name = text[4 : text.index("(")]
        names = list(signature) + list(constants)
        kernel = Kernel(
            function=name,
            signature=signature | dict.fromkeys(constants, "constexpr"),
            constants=tuple(((names.index(n),), v) for n, v in constants.items()),
        )
        return Function(name=name, text=text, names=TL), kernel

    @staticmethod
    def launch(kernel: str, grid: int | tuple[int, int, int], **args: Any) -> Launch:
        return Launch(
            kernel=kernel, grid=(grid, 1, 1) if isinstance(grid, int) else grid, args=args
        )

    @staticmethod
    def traced(trace: Trace, *kernels: tuple[Function, Kernel]) -> Traced:
        functions = {f.name: f for f, _ in kernels}
        return Traced(
            functions=functions, kernels={k.function: k for _, k in kernels}, traces=(trace,)
        )


@pytest.fixture(scope="session")
def write() -> Writer:
    return Writer()


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    with Zygote(
        ProcessKind.INTERPRET, warm="kernelwright.tools.replaying.interpreter.process:warm"
    ) as made:
        yield made


class Bench:
    """One trace at a time in a real process, over memory of the judge's kind."""

    def __init__(self, zygote: Zygote) -> None:
        self.buffers, self.replayer = Buffers("cpu"), Replayer("cpu", zygote)
        self.shared: list[SharedTensor] = []
        self.places: list[SharedTensor] = []
        self._tree: Any = None

    def memory(self, tensors: Sequence[torch.Tensor]) -> list[SharedTensor]:
        placed = self.buffers.together(tensors)
        for shared, tensor in zip(placed, tensors, strict=True):
            shared.fill_margins(0xFF)
            shared.tensor.copy_(tensor)
        return placed

    def open(
        self, traced: Traced, weights: dict[str, torch.Tensor] | None = None, **options: Any
    ) -> dict[str, SharedTensor]:
        placed = dict(zip(weights or {}, self.memory(list((weights or {}).values())), strict=True))
        self.replayer.open(traced, 0, placed, **{"seed": 0, "seconds": 60.0, **options})
        return placed

    def call(
        self, inputs: Sequence[Any], like: Sequence[torch.Tensor] = (), **options: Any
    ) -> Reply:
        """Outputs are in `got` afterwards."""
        self.shared = self.memory([i for i in inputs if isinstance(i, torch.Tensor)])
        waiting = iter(self.shared)
        self._tree = wire.describe(list(inputs), lambda tensor: next(waiting).spec)
        self.places = self.memory([torch.zeros_like(one) for one in like])
        return self.again(**options)

    def again(self, **options: Any) -> Reply:
        return self.replayer.call(self._tree, self.shared, self.places, **options)

    @property
    def got(self) -> list[torch.Tensor]:
        return [place.tensor for place in self.places]

    def close(self) -> None:
        self.replayer.close()
        self.buffers.close()


@pytest.fixture(scope="session")
def shared_bench(zygote: Zygote) -> Iterator[Bench]:
    made = Bench(zygote)
    yield made
    made.close()


@pytest.fixture
def bench(shared_bench: Bench) -> Bench:
    """One process for all tests, as for all candidates."""
    return shared_bench
