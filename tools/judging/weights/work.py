"""Whether the calls of a trace need something that its set-up computed from the weights. Trusted: it reads a trace.

Followed through memory: a view, and what is written in place, lies where its base lies. What is written to a tensor
that the judge loads initialises it and does not count: the loaded values take its place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from kernelwright.tools.trace.shared_memory import SharedMemory, numbers_of
from kernelwright.tools.trace.trace import Data, Launch, Operator, Trace, all_steps, tensors_in

Computes = Callable[[Operator], bool]
"""Whether an operator computes, and not only lays values out anew."""


def computed_from_weights(trace: Trace, loaded: Collection[int], computes: Computes) -> str:
    """Returns the first step of the set-up that computes, from the weights, what a call needs; empty where there is
    none.

    loaded: numbers of the tensors whose values the judge loads.
    """
    memory = SharedMemory(trace.setup, loaded)
    holds_weights = set[int]()
    """Storages that hold weights, or copies of them."""
    computed: dict[int, str] = {}
    """Storages that hold what a step computed from weights, and the name of that step."""
    for step in all_steps(trace.setup):
        used, targets = memory.follow(step)
        source = memory.first_entry(computed, used)
        from_weights = any(n in loaded or memory.storage(n) in holds_weights for n in used)
        if from_weights and not source and _works(step, computes):
            source = step.op if isinstance(step, Operator) else "a launch"
        if source:
            computed |= {storage: source for storage in targets if storage not in computed}
        elif from_weights:
            holds_weights |= targets
        holds_weights |= {memory.storage(n) for n in (*used, *numbers_of(step)[1]) if n in loaded}
    return _needed(trace, memory, computed, loaded)


def _needed(
    trace: Trace, memory: SharedMemory, computed: dict[int, str], loaded: Collection[int]
) -> str:
    """Returns what is noted of the first tensor that a call needs."""
    numbers = {
        n
        for step in (*all_steps(trace.first), *all_steps(trace.later or ()))
        for n in numbers_of(step)[0]
    }
    numbers |= {*tensors_in(trace.first_outputs), *tensors_in(trace.later_outputs)}
    return memory.first_entry(computed, sorted(numbers - set(loaded)))


def _works(step: Operator | Launch | Data, computes: Computes) -> bool:
    return isinstance(step, Launch) or (isinstance(step, Operator) and computes(step))
