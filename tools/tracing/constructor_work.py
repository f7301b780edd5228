"""Whether the calls of a trace need something that its set-up computed from the weights. Trusted: it reads a trace.

Followed through memory: a view, and what is written in place, lies where its base lies. What is written to a parameter
or a buffer that the judge loads initialises it and does not count: what is loaded takes its place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from kernelwright.tools.tracing.trace import Data, Launch, Operator, Step, Trace, all_steps, tensors_in

Computes = Callable[[Operator], bool]
"""Whether an operator computes, and not only lays values out anew."""
VIEWS = ("_unsafe_view", "_reshape_alias")
"""Operators that may give a view, and do not say so in their schema."""


def folded_weights(trace: Trace, weights: Collection[int], loaded: Collection[int], computes: Computes) -> str:
    """The first step that computes, from the weights, what a call needs; empty where there is none.

    weights: numbers of the parameters that the judge loads. loaded: those of all that it loads, buffers too.
    """
    memory = Places(trace.setup, loaded)
    holds = set[int]()
    told: dict[int, str] = {}
    for step in all_steps(trace.setup):
        used, targets = memory.follow(step)
        computed = memory.found(told, used)
        from_weights = any(n in weights or memory.place(n) in holds for n in used)
        if from_weights and not computed and _works(step, computes):
            computed = _named(step)
        if computed:
            told |= {place: computed for place in targets if place not in told}
        elif from_weights:
            holds |= targets
        holds |= {memory.place(n) for n in (*used, *_numbers(step)[1]) if n in weights}
    return _needed(trace, memory, told, loaded)


def product_of_draws(trace: Trace, loaded: Collection[int], computes: Computes) -> str:
    """The first step that combines two tensors which were drawn at random into what a call needs."""
    memory = Places(trace.setup, loaded)
    draws: dict[int, frozenset[int]] = {}
    told: dict[int, str] = {}
    for count, step in enumerate(all_steps(trace.setup)):
        used, targets = memory.follow(step)
        if _draws(step):
            draws |= {place: frozenset({count}) for place in targets}
            continue
        sources = {draws[memory.place(n)] for n in used if not memory.is_loaded(n) and memory.place(n) in draws}
        computed = memory.found(told, used)
        if len(sources) > 1 and not computed and _works(step, computes):
            computed = _named(step)
        if sources:
            draws |= {place: frozenset[int]().union(*sources) for place in targets}
        if computed:
            told |= {place: computed for place in targets if place not in told}
    return _needed(trace, memory, told, loaded)


def operator_named(op: str) -> Any | None:
    """torch's operator of this name (`aten.view.default`); None where there is none."""
    import torch

    parts = op.split(".")
    if len(parts) != 3 or parts[0] != "aten":
        return None
    found = getattr(getattr(torch.ops.aten, parts[1], None), parts[2], None)
    return found if isinstance(found, torch._ops.OpOverload) else None


class Places:
    """Which tensors of a trace's steps lie in one place, and which lie within what the judge loads."""

    def __init__(self, setup: Iterable[Step], loaded: Collection[int]) -> None:
        self._parent: dict[int, int] = {}
        self._loaded = set(loaded)
        for step in all_steps(setup):
            used, made = _numbers(step)
            if used and _shares(step):
                for number in made:
                    self._parent[self.place(number)] = self.place(used[0])

    def place(self, number: int) -> int:
        """The number of a tensor that stands for all of one place."""
        while (parent := self._parent.get(number, number)) != number:
            number = parent
        return number

    def is_loaded(self, number: int) -> bool:
        """Whether a tensor is what the judge loads, or a part of it."""
        return number in self._loaded

    def follow(self, step: Operator | Launch | Data) -> tuple[list[int], set[int]]:
        """Numbers of the tensors that a step reads, and the places of those that it gives or writes to, but for what
        the judge loads.
        """
        used, made = _numbers(step)
        if used and used[0] in self._loaded and _shares(step):
            self._loaded.update(made)
        return used, {self.place(n) for n in (*made, *_written(step)) if n not in self._loaded}

    def found(self, told: dict[int, str], used: list[int]) -> str:
        """What is told of the first of these tensors of which something is told."""
        places = (self.place(n) for n in used if n not in self._loaded)
        return next((told[place] for place in places if place in told), "")


def _needed(trace: Trace, memory: Places, told: dict[int, str], loaded: Collection[int]) -> str:
    """What is told of the first tensor that a call needs."""
    wanted = {n for step in (*all_steps(trace.first), *all_steps(trace.later or ())) for n in _numbers(step)[0]}
    wanted |= {*tensors_in(trace.first_outputs), *tensors_in(trace.later_outputs)}
    return memory.found(told, sorted(wanted - set(loaded)))


def _numbers(step: Operator | Launch | Data) -> tuple[list[int], list[int]]:
    """Numbers of the tensors that a step is given, and of those that it gives."""
    if isinstance(step, Operator):
        return [*tensors_in(step.args), *tensors_in(step.kwargs)], list(tensors_in(step.out))
    return (list(tensors_in(step.args)), []) if isinstance(step, Launch) else ([], [step.t])


def _written(step: Operator | Launch | Data) -> Iterator[int]:
    """Numbers of the tensors that a step writes to: by an operator's schema; a launch may write to all."""
    if isinstance(step, Launch):
        yield from tensors_in(step.args)
    func = operator_named(step.op) if isinstance(step, Operator) else None
    if func is None or not isinstance(step, Operator):
        return
    for number, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from tensors_in(step.args[number] if number < len(step.args) else step.kwargs.get(argument.name))


def _shares(step: Operator | Launch | Data) -> bool:
    """Whether what an operator gives lies in the memory of the first tensor that it is given."""
    func = operator_named(step.op) if isinstance(step, Operator) else None
    if func is None:
        return False
    written_first = bool(func._schema.arguments) and getattr(func._schema.arguments[0].alias_info, "is_write", False)
    return func.is_view or written_first or func.overloadpacket.__name__ in VIEWS


def _draws(step: Operator | Launch | Data) -> bool:
    import torch

    func = operator_named(step.op) if isinstance(step, Operator) else None
    return func is not None and torch.Tag.nondeterministic_seeded in func.tags


def _works(step: Operator | Launch | Data, computes: Computes) -> bool:
    return isinstance(step, Launch) or (isinstance(step, Operator) and computes(step))


def _named(step: Operator | Launch | Data) -> str:
    return step.op if isinstance(step, Operator) else "a launch"
