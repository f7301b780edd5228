"""Programs of one launch replayed from their record many at a time: each step once for all of them, on arrays with one
more axis.

A step that has no such form is done program by program. Programs that decide otherwise than any before them are
interpreted one by one, and recorded. Whatever goes wrong takes the launch back: it is then run program after program,
where an error has its line and a race its outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice, repeat
from typing import Any

import numpy as np

from kernelwright.tools.replaying.interpreter.guarded_memory import OutOfBounds
from kernelwright.tools.replaying.interpreter.races import NeedsInterleaving, Program
from kernelwright.tools.replaying.interpreter.recording.batch_guard import (
    SEVERAL_READERS,
    BatchGuard,
    CannotRunTogether,
    ReadsOwnOutput,
)
from kernelwright.tools.replaying.interpreter.recording.language import Node, RecordedOperation
from kernelwright.tools.replaying.interpreter.recording.programs import Programs
from kernelwright.tools.report import Failed

MIN_BATCHED_PROGRAMS = 4
"""Programs below which one after the other is as quick."""
BATCH_BYTES = 8 << 20
"""Bytes of all values of the programs of one batch."""
MAX_WASTED_BATCHES = 4
"""Batches of one launch of which most programs took a way of their own, after which the rest run one by one."""
PROGRAM_ID = "create_get_program_id"
OF_OPERANDS = (
    "create_get_num_programs",
    "times_of_loop",
    "transpose",
    "reduce",
    "associative_scan",
)
"""Operations that give every program the same where their operands are the same."""


class Batches:
    """The programs of one launch."""

    def __init__(
        self, record: Programs, guard: BatchGuard, enter: Callable[[Program], None], run: Callable[[], None],
        handles: Sequence[Any],
    ) -> None:  # fmt: skip
        """enter: makes the interpreter's state that of one program. run: the program that was entered, by itself.
        handles: of the launch's arguments.
        """
        self._record, self._guard, self._enter, self._run, self._handles = (
            record,
            guard,
            enter,
            run,
            handles,
        )

    def run_all(self, programs: Iterator[Program]) -> bool:
        """Whether all of them ran, and none touched what another one wrote; where not, memory is as it was before."""
        try:
            self._all(programs)
            self._guard.require_apart()
            return True
        except ReadsOwnOutput:
            self._record.follows_elements = True
        except (CannotRunTogether, NeedsInterleaving):
            self._record.apart = True
        except Failed:
            raise
        except (Exception, OutOfBounds):
            pass  # it is met again, program after program
        self._guard.writes.restore()
        return False

    def _all(self, programs: Iterator[Program]) -> None:
        waiting: list[Program] = []
        wasted = 0
        while True:
            root, size = self._record.root, self._record.batch(BATCH_BYTES)
            waiting += islice(programs, max(size - len(waiting), 0))
            if not waiting:
                return
            if (
                root is None
                or min(len(waiting), size) < MIN_BATCHED_PROGRAMS
                or wasted > MAX_WASTED_BATCHES
            ):
                self._alone(waiting.pop())
                continue
            group, waiting = waiting[:size], waiting[size:]
            undecided = self._together(root, group)
            self._record.served(len(group) - len(undecided))
            wasted += 2 * len(undecided) > len(group)
            if undecided:
                self._alone(undecided.pop())
                waiting += undecided

    def _alone(self, program: Program) -> None:
        self._guard.who = program.number + 1
        self._enter(program)
        self._run()
        if self._guard.trouble is not None:
            raise self._guard.trouble

    def _together(self, root: Node, group: list[Program]) -> list[Program]:
        """Replays them; gives those that came to a decision which nobody has taken before."""
        values = [h.data for h in self._handles]
        waiting = [_Branch(group, values, [False] * len(values), root, False)]
        undecided: list[Program] = []
        while waiting:
            branch = waiting.pop()
            branch.take_steps(self._guard, self._enter)
            undecided += branch.go_on(waiting)
        return undecided


class _Branch:
    """Programs that have decided alike so far."""

    def __init__(
        self, group: list[Program], values: list[Any], leads: list[bool], node: Node, wrote: bool
    ) -> None:
        self._group, self._values, self._leads, self._node, self._wrote = (
            group,
            values,
            leads,
            node,
            wrote,
        )

    def take_steps(self, guard: BatchGuard, enter: Callable[[Program], None]) -> None:
        """Takes all steps of the node. Raises CannotRunTogether, and what a step raises."""
        numbers = np.array([p.number + 1 for p in self._group], np.int32)
        values, leads = self._values, self._leads
        values += self._node.fresh
        leads += [False] * len(self._node.fresh)
        unused = self._node.unused_after or repeat(())
        for step, forgotten in zip(self._node.steps, unused, strict=False):
            self._wrote = self._wrote or "store" in step.name
            if step.name == PROGRAM_ID:
                values[step.slot], leads[step.slot] = self._places(step, values), True
            elif not step.name and step.operands is not None:
                values[step.slot] = step.run(values[step.operands[0]])
                leads[step.slot] = leads[step.operands[0]]
            else:
                guard.who = numbers
                values[step.slot], leads[step.slot] = self._stepped(step, guard, enter)
            for slot in forgotten:
                values[slot] = None

    def _places(self, step: RecordedOperation, values: list[Any]) -> Any:
        """Returns where each program lies in the grid, along the axis that the step asks for."""
        if type(step.asks) is not int:
            raise CannotRunTogether
        return np.array([[p.grid_index[step.asks]] for p in self._group], np.int32)

    def _stepped(
        self, step: RecordedOperation, guard: BatchGuard, enter: Callable[[Program], None]
    ) -> tuple[Any, bool]:
        """The result, and whether it differs from program to program."""
        if step.batched is not None:
            leads = [self._leads[slot] for slot in step.batched.operands]
            if any(leads):
                return step.batched.run(
                    [self._values[slot] for slot in step.batched.operands], leads
                ), True
        if step.batched is not None or (
            step.name in OF_OPERANDS and not any(self._leads[slot] for slot in step.uses)
        ):
            guard.who = SEVERAL_READERS
            operands = step.operands
            return step.run(self._values) if operands is None else step.run(
                *map(self._values.__getitem__, operands)
            ), False
        return self._one_by_one(step, guard, enter), True

    def _one_by_one(
        self, step: RecordedOperation, guard: BatchGuard, enter: Callable[[Program], None]
    ) -> Any:
        found = []
        for place, program in enumerate(self._group):
            guard.who = program.number + 1
            enter(program)
            own = _OfOneProgram(self._values, self._leads, place)
            found.append(
                step.run(own)
                if step.operands is None
                else step.run(*[own[s] for s in step.operands])
            )
        if guard.trouble is not None:
            raise guard.trouble
        if found[0] is None:
            return None
        if isinstance(found[0], list | tuple):
            return [np.stack(parts) for parts in zip(*found, strict=True)]
        return np.stack(found)

    def go_on(self, waiting: list[_Branch]) -> list[Program]:
        """Adds what the programs come to next; gives those of them that nobody has gone before.

        Raises CannotRunTogether where these have written already.
        """
        slot = self._node.decision
        if slot < 0:
            return []
        decided = self._values[slot]
        groups: dict[bytes, list[int]] = {}
        if not self._leads[slot]:
            groups = {decided.tobytes(): list(range(len(self._group)))}
        else:
            for place in range(len(self._group)):
                groups.setdefault(decided[place].tobytes(), []).append(place)
        undecided: list[Program] = []
        for key, places in groups.items():
            child = self._node.children.get(key)
            if child is None:
                if self._wrote:
                    raise CannotRunTogether
                undecided += [self._group[place] for place in places]
            else:
                waiting.append(self._part(places, child))
        return undecided

    def _part(self, places: list[int], child: Node) -> _Branch:
        if len(places) == len(self._group):
            return _Branch(self._group, list(self._values), list(self._leads), child, self._wrote)
        values = [
            _taken(v, places) if lead else v
            for v, lead in zip(self._values, self._leads, strict=True)
        ]
        return _Branch(
            [self._group[p] for p in places], values, list(self._leads), child, self._wrote
        )


def _taken(value: Any, places: list[int]) -> Any:
    if value is None:
        return None
    return [one[places] for one in value] if isinstance(value, list) else value[places]


class _OfOneProgram:
    """The values of one program."""

    def __init__(self, values: Sequence[Any], leads: Sequence[bool], place: int) -> None:
        self._values, self._leads, self._place = values, leads, place

    def __getitem__(self, slot: int) -> Any:
        found = self._values[slot]
        if not self._leads[slot]:
            return found
        return (
            [one[self._place, ...] for one in found]
            if isinstance(found, list)
            else found[self._place, ...]
        )
