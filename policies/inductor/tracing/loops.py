"""Loops over a symbolic size, traced once.

A step becomes a graph of its own, and the loop an operator of the surrounding graph. The candidate
writes the operator as `for step in range(...)` around the launches of the step's graph
(writing/loops.py).

A step may read any tensor from before the loop, carries tensors of constant shape, and returns
tensors that are stacked. A loop inside a loop is a loop inside its graph. A loop with a numeric
count is unrolled.

Example: `over_steps(body, length, {"h": h})` with a body that returns
`({"h": new}, {"outputs": new})` adds the node `steps([h], [x, weight], length, 0)` to the graph,
whose results are the last `h` and the stacked outputs. Graph 0 has the arguments: step, sizes, h,
h_next, outputs[step], x, weight; it writes into h_next and outputs[step].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from kernelwright.policies.inductor.tracing.step_inputs import (
    Unsuited,
    collecting,
    pausing,
    substituting,
)

if TYPE_CHECKING:
    import torch

    from kernelwright.policies.inductor.tracing.sizes import SymbolicSizes

STEPS_OPERATOR = "kernelwright::steps"
TRACED_STEP = 2
"""Step number at which a loop's body is traced; results must not depend on this number."""

Body = Callable[[Any, dict[str, Any]], tuple[dict[str, Any], dict[str, Any]]]
"""Loop body: (step, carried tensors) -> (next carried tensors, tensors to stack)."""


@dataclass
class LoopBody:
    """Step of a loop as a graph."""

    carried: list[str]
    """A name for each carried tensor."""
    stacked: list[str]
    """A name for each tensor the steps give."""
    shapes: list[tuple[list[Any], Any]]
    """Sizes and dtype of a step's part of each stacked tensor."""
    step: Any = None
    """The symbol of the step."""
    graph: Any = None
    flat: list[Any] = field(default_factory=list)
    """Step, sizes, carried, carried on, stacked, given: the graph's arguments."""
    sizes: list[Any] = field(default_factory=list)
    """Symbols of sizes among the arguments."""


Path = tuple[int, ...]
"""Position of a loop: its number in forward, then its number in the step of that loop, and so on.
"""


class LoopForm(StrEnum):
    """Treatment of loops over symbolic sizes."""

    NESTED = "nested"
    """All stay loops, those inside others too."""
    SINGLE = "single"
    """Loops inside others are run as they are."""
    UNROLLED = "unrolled"
    """All are run as they are."""


class Unlearned(Unsuited):
    """A loop whose step has not been learnt, since the problem's text shows no loop: a function of torch has it."""


class _Frame:
    """Code in execution: forward, or the step of a loop."""

    def __init__(self, path: Path, step: torch.SymInt | None = None) -> None:
        """step: the symbol of the step."""
        self.path, self.step, self._loops = path, step, 0

    def next(self) -> Path:
        """The path of the next loop it comes to."""
        self._loops += 1
        return (*self.path, self._loops - 1)


class Loops:
    """Loops of a module, in execution order of forward."""

    def __init__(self, form: LoopForm, learns: bool, in_packages: bool = False) -> None:
        """learns: whether forward is run once more before it is traced, to learn the bodies of its loops.
        in_packages: whether loops in functions of installed packages are rewritten.
        """
        self.learns, self.in_packages = learns, in_packages
        self.rewritten = False
        """Whether functions of installed packages were rewritten."""
        self.bodies: list[LoopBody] = []
        self.form = form
        self._sizes: Any = None
        self._make: Callable[[Any, list[Any]], Any] | None = None
        self._body_numbers: dict[Path, int] = {}
        """Position of a loop -> index of its body."""
        self._frames: list[_Frame] = [_Frame(())]
        self.learning = False
        self.learnt = False
        """Whether forward was run to learn the bodies of its loops."""
        self.nested = False
        """Whether there is a loop inside a loop."""

    def use(self, sizes: SymbolicSizes, make: Callable[[Any, list[Any]], Any]) -> None:
        """make: a function and its arguments -> a graph."""
        self._sizes, self._make = sizes, make

    @property
    def inside(self) -> bool:
        """Whether a step is being traced."""
        return len(self._frames) > 1

    def begin(self, learning: bool) -> None:
        """Has to be called before forward is run, once to learn the bodies, and once to trace it."""
        self._frames, self.learning = [_Frame(())], learning
        if learning:
            self.learnt = True
            self.bodies.clear()
            self._body_numbers.clear()

    def over(
        self, body: Body, count: int | torch.SymInt, state: dict[str, Any], *, keep: bool = False
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Runs a body `count` times; returns the last carried tensors and the stacked results.

        keep: keep the loop for a numeric count too. Raises DraftRefused if a carried tensor
        changes its shape.
        """
        import torch
        from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing

        size = keep or (isinstance(count, torch.SymInt) and bool(count.node.expr.free_symbols))
        self.nested = self.nested or (size and self.inside)
        if (
            not size
            or self.form is LoopForm.UNROLLED
            or (self.inside and self.form is LoopForm.SINGLE)
        ):
            return _unrolled(body, count, state)
        leaves, form = torch.utils._pytree.tree_flatten(state)
        tensors = [v for v in leaves if isinstance(v, torch.Tensor)]
        # 1. Identify the loop by its position in forward.
        path = self._frames[-1].next()
        number = self._body_numbers.get(path)
        if number is None and not self.learning:
            if not self.learnt:
                raise Unlearned("a loop over a size in a function of torch")
            raise Unsuited("a loop over a size is not there each time that forward is run")
        # 2. Run the step once at a symbolic number, and collect the tensors that it reads.
        step = self._sizes.step(len(self.bodies)) if number is None else self.bodies[number].step

        def framed(at: int, carried: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
            self._frames.append(_Frame(path, step))
            try:
                return body(at, carried)
            finally:
                self._frames.pop()

        with disable_proxy_modes_tracing(), collecting(tensors) as read_tensors:
            framed(step, dict(state))
        if number is None:
            with (
                pausing()
            ):  # what an inner loop's graph is made of is nothing that the step around it is given
                new_body = self._learnt(framed, step, state, tensors, read_tensors)
            number = self._body_numbers[path] = len(self.bodies)
            self.bodies.append(new_body)
        learnt_body = self.bodies[number]
        # 3. Put the operator into the surrounding graph.
        results = _operator()(tensors, list(read_tensors), count, number)
        after = iter(results[: len(tensors)])
        carried = [next(after) if isinstance(v, torch.Tensor) else v for v in leaves]
        stacked = dict(zip(learnt_body.stacked, results[len(tensors) :], strict=True))
        return torch.utils._pytree.tree_unflatten(carried, form), stacked

    def _learnt(
        self,
        body: Body,
        step: torch.SymInt,
        state: dict[str, Any],
        tensors: list[Any],
        read_tensors: list[Any],
    ) -> LoopBody:
        import torch

        paths = torch.utils._pytree.tree_flatten_with_path(state)[0]
        # Names of the carried tensors, from their keys in the state.
        names = ["_".join(str(getattr(k, "key", getattr(k, "idx", k))) for k in p) for p, v in paths
                 if isinstance(v, torch.Tensor)]  # fmt: skip
        with substituting({}):
            _, gives = body(step, dict(state))
        shapes = [(list(v.shape), v.dtype) for v in gives.values()]
        sizes = [
            *self._sizes.by_path.values(),
            *(f.step for f in self._frames if f.step is not None),
        ]
        carried = [_fresh(v, contiguous=True) for v in tensors]
        ahead = [_fresh(v, contiguous=True) for v in tensors]
        slots = [torch.empty(shape, dtype=dtype) for shape, dtype in shapes]
        read = [_fresh(v) for v in read_tensors]
        # The step's graph writes its results into the tensors `ahead` and `slots`.
        flat = [step, *sizes, *carried, *ahead, *slots, *read]
        form = torch.utils._pytree.tree_structure(state)
        leaves = torch.utils._pytree.tree_leaves(state)

        def run(at: int, *values: Any) -> None:
            tensor_values = list(values[len(sizes) :])
            now, on, puts, new = (
                tensor_values[a:b]
                for a, b in _cuts(len(tensors), len(tensors), len(shapes), len(read_tensors))
            )
            waiting = iter(now)
            step_state = [next(waiting) if isinstance(v, torch.Tensor) else v for v in leaves]
            with substituting(dict(zip(map(id, read_tensors), new, strict=True))):
                after, outputs = body(at, torch.utils._pytree.tree_unflatten(step_state, form))
            new_leaves = torch.utils._pytree.tree_leaves(after)
            carried_now = [v for v in new_leaves if isinstance(v, torch.Tensor)]
            if len(carried_now) != len(on) or len(new_leaves) != len(leaves):
                raise Unsuited("a loop over a size carries a number of tensors that changes")
            if any(not isinstance(v, torch.Tensor) and v is not w and v != w
                   for v, w in zip(leaves, new_leaves, strict=True)):  # fmt: skip
                raise Unsuited("a loop over a size carries a number that changes")
            # Shapes must stay: the candidate allocates these tensors once, before the loop.
            for destination, value in [
                *zip(on, carried_now, strict=True),
                *zip(puts, outputs.values(), strict=True),
            ]:
                if len(destination.shape) != len(value.shape) or destination.dtype != value.dtype:
                    raise Unsuited("a loop over a size carries a tensor whose shape changes")
                destination.copy_(value)

        assert self._make is not None
        graph = self._make(run, flat)
        self._sizes.hold_for_every(step)
        return LoopBody(names, list(gives), shapes, step, graph, flat, sizes)


def _cuts(*lengths: int) -> list[tuple[int, int]]:
    ends = [sum(lengths[: i + 1]) for i in range(len(lengths))]
    return list(zip([0, *ends], ends, strict=False))


def _fresh(value: torch.Tensor, contiguous: bool = False) -> Any:
    import torch

    if contiguous:
        return torch.empty(value.shape, dtype=value.dtype)
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)


def _unrolled(
    body: Body, count: int | torch.SymInt, state: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    import torch

    rows: list[dict[str, Any]] = []
    for step in range(count):
        state, outputs = body(step, dict(state))
        rows.append(outputs)
    return state, {
        name: torch.stack([row[name] for row in rows]) for name in rows[0]
    } if rows else {}


# ------------------------------------------------------------------------------------------ the loop as an operator
_current: list[Loops] = []
"""The loops of the module being traced."""


@contextmanager
def tracing_loops(loops: Loops) -> Iterator[None]:
    """Makes `loops` the current collector of loops inside the `with` block."""
    _current.append(loops)
    try:
        yield
    finally:
        _current.pop()


def is_tracing_forward() -> bool:
    """Whether forward is being traced, and not a constructor."""
    return bool(_current)


def in_a_step() -> bool:
    """Returns whether the step of a preserved loop is being traced."""
    return bool(_current) and _current[-1].inside


def keeps_loops() -> bool:
    """Whether forward is being traced with its loops over sizes as loops: in a constructor they are run as they are."""
    return bool(_current) and _current[-1].form is not LoopForm.UNROLLED


def over_steps(
    body: Body, count: int | torch.SymInt, state: dict[str, Any], *, keep: bool = False
) -> tuple[dict[str, Any], dict[str, Any]]:
    """See `Loops.over`; outside of a trace the loop is run as it is."""
    return (
        _current[-1].over(body, count, state, keep=keep)
        if _current
        else _unrolled(body, count, state)
    )


_library: list[Any] = []


def _operator() -> Any:
    """Defines the operator once a process."""
    import torch

    if not _library:
        _library.append(torch.library.Library("kernelwright", "FRAGMENT"))
        _library[0].define(
            "steps(Tensor[] carried, Tensor[] given, SymInt count, int loop) -> Tensor[]"
        )
        torch.library.register_fake(STEPS_OPERATOR, _shapes_of, lib=_library[0])
    return torch.ops.kernelwright.steps.default


def _shapes_of(carried: list[Any], given: list[Any], count: int, loop: int) -> list[Any]:
    import torch

    body = _current[-1].bodies[loop]
    device = (carried or given)[0].device
    after = [torch.empty(v.shape, dtype=v.dtype, device=device) for v in carried]
    return after + [
        torch.empty([count, *shape], dtype=dtype, device=device) for shape, dtype in body.shapes
    ]
