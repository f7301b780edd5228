"""Replays programs of a launch in batches: each step runs once per batch, on arrays with an extra
first axis.

A step without a batched form runs program by program. Programs that take a new branch are
interpreted one at a time and recorded. Any error undoes the whole launch, which then runs
sequentially: there an error has its source line, and a race its outcome.

Example: 64 programs, of which program 0 takes the branch `if pid == 0`, recorded at program 1. The
batch of all 64 reaches the decision, whose values are [True, False, ..., False]. The 63 programs
with False continue as a group in the recorded child node; program 0 is returned as undecided,
interpreted from the start, and adds the child node for True.
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
"""Minimum number of programs for a batch: fewer are as quick one after the other."""
BATCH_BYTES = 8 << 20
"""Maximum size, in bytes, of all values of a batch."""
MAX_WASTED_BATCHES = 4
"""Batches of a launch in which most programs took new branches, after which the remaining programs
run singly."""
PROGRAM_ID = "create_get_program_id"
OF_OPERANDS = (
    "create_get_num_programs",
    "times_of_loop",
    "transpose",
    "reduce",
    "associative_scan",
)
"""Operations with equal results for all programs if their operands are equal."""


class Batches:
    """Replays the programs of a launch in batches."""

    def __init__(
        self, record: Programs, guard: BatchGuard, enter: Callable[[Program], None], run: Callable[[], None],
        handles: Sequence[Any],
    ) -> None:  # fmt: skip
        """Stores the parts of a launch.

        enter: sets the interpreter's state to a program. run: interprets or replays the entered
        program alone. handles: those of the launch's arguments.
        """
        self._record = record
        self._guard = guard
        self._enter = enter
        self._run = run
        self._handles = handles

    def run_all(self, programs: Iterator[Program]) -> bool:
        """Runs all programs; False if they share memory or fail, with memory restored."""
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
            pass  # met again, by the program that causes it, when the launch is interpreted program by program
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
                # The first program alone creates the record, and tells the size of a program's values.
                self._alone(waiting.pop())
                continue
            group, waiting = waiting[:size], waiting[size:]
            undecided = self._together(root, group)
            self._record.served(len(group) - len(undecided))
            wasted += 2 * len(undecided) > len(group)
            if undecided:
                # One of them is interpreted and adds its branch to the record, which the others may take then.
                self._alone(undecided.pop())
                waiting += undecided

    def _alone(self, program: Program) -> None:
        self._guard.who = program.number + 1
        self._enter(program)
        self._run()
        if self._guard.trouble is not None:
            raise self._guard.trouble

    def _together(self, root: Node, group: list[Program]) -> list[Program]:
        """Replays a batch; returns programs that reached a decision with an unrecorded outcome."""
        values = [h.data for h in self._handles]
        waiting = [_Branch(group, values, [False] * len(values), root, False)]
        undecided: list[Program] = []
        while waiting:
            branch = waiting.pop()
            branch.take_steps(self._guard, self._enter)
            undecided += branch.follow_decision(waiting)
        return undecided


class _Branch:
    """Programs of a batch with equal decisions so far, and their values."""

    def __init__(
        self, group: list[Program], values: list[Any], leads: list[bool], node: Node, wrote: bool
    ) -> None:
        self._group = group
        self._values = values
        self._leads = leads
        self._node = node
        self._wrote = wrote

    def take_steps(self, guard: BatchGuard, enter: Callable[[Program], None]) -> None:
        """Runs all steps of the node. Raises CannotRunTogether and errors of steps."""
        numbers = np.array([p.number + 1 for p in self._group], np.int32)
        values = self._values
        leads = self._leads
        values += self._node.fresh
        leads += [False] * len(self._node.fresh)
        unused = self._node.unused_after or repeat(())
        for step, forgotten in zip(self._node.steps, unused, strict=False):
            self._wrote = self._wrote or "store" in step.name
            if step.name == PROGRAM_ID:
                values[step.slot], leads[step.slot] = self._grid_indices(step, values), True
            elif not step.name and step.operands is not None:
                values[step.slot] = step.run(values[step.operands[0]])
                leads[step.slot] = leads[step.operands[0]]
            else:
                guard.who = numbers
                values[step.slot], leads[step.slot] = self._stepped(step, guard, enter)
            for slot in forgotten:
                values[slot] = None

    def _grid_indices(self, step: RecordedOperation, values: list[Any]) -> Any:
        """Returns each program's index in the grid, along the axis of the step."""
        if type(step.first_integer) is not int:
            raise CannotRunTogether
        return np.array([[p.grid_index[step.first_integer]] for p in self._group], np.int32)

    def _stepped(
        self, step: RecordedOperation, guard: BatchGuard, enter: Callable[[Program], None]
    ) -> tuple[Any, bool]:
        """Runs a step; returns its result, and whether this differs between programs."""
        if step.batched is not None:
            leads = [self._leads[slot] for slot in step.batched.operands]
            if any(leads):
                return step.batched.run(
                    [self._values[slot] for slot in step.batched.operands], leads
                ), True
        if step.batched is not None or (
            step.name in OF_OPERANDS and not any(self._leads[slot] for slot in step.uses)
        ):
            # Its operands are equal in all programs, so one run serves all of them.
            guard.who = SEVERAL_READERS
            operands = step.operands
            return step.run(self._values) if operands is None else step.run(
                *map(self._values.__getitem__, operands)
            ), False
        return self._one_by_one(step, guard, enter), True

    def _one_by_one(
        self, step: RecordedOperation, guard: BatchGuard, enter: Callable[[Program], None]
    ) -> Any:
        results = []
        for index, program in enumerate(self._group):
            guard.who = program.number + 1
            enter(program)
            values = _OfOneProgram(self._values, self._leads, index)
            results.append(
                step.run(values)
                if step.operands is None
                else step.run(*[values[s] for s in step.operands])
            )
        if guard.trouble is not None:
            raise guard.trouble
        if results[0] is None:
            return None
        if isinstance(results[0], list | tuple):
            return [np.stack(parts) for parts in zip(*results, strict=True)]
        return np.stack(results)

    def follow_decision(self, waiting: list[_Branch]) -> list[Program]:
        """Appends the branches that follow the decision to `waiting`; returns programs without a
        recorded branch.

        Raises CannotRunTogether if programs without a recorded branch have already written to
        memory.
        """
        slot = self._node.decision
        if slot < 0:
            return []
        decided = self._values[slot]
        groups: dict[bytes, list[int]] = {}
        if not self._leads[slot]:
            groups = {decided.tobytes(): list(range(len(self._group)))}
        else:
            for index in range(len(self._group)):
                groups.setdefault(decided[index].tobytes(), []).append(index)
        undecided: list[Program] = []
        for key, indices in groups.items():
            child = self._node.children.get(key)
            # An unrecorded branch is interpreted from the program's start, which would repeat its
            # writes.
            if child is None:
                if self._wrote:
                    raise CannotRunTogether
                undecided += [self._group[index] for index in indices]
            else:
                waiting.append(self._part(indices, child))
        return undecided

    def _part(self, indices: list[int], child: Node) -> _Branch:
        if len(indices) == len(self._group):
            return _Branch(self._group, list(self._values), list(self._leads), child, self._wrote)
        values = [
            _select_programs(v, indices) if lead else v
            for v, lead in zip(self._values, self._leads, strict=True)
        ]
        return _Branch(
            [self._group[p] for p in indices], values, list(self._leads), child, self._wrote
        )


def _select_programs(value: Any, indices: list[int]) -> Any:
    if value is None:
        return None
    return [part[indices] for part in value] if isinstance(value, list) else value[indices]


class _OfOneProgram:
    """View of the values as seen by a single program."""

    def __init__(self, values: Sequence[Any], leads: Sequence[bool], index: int) -> None:
        self._values = values
        self._leads = leads
        self._index = index

    def __getitem__(self, slot: int) -> Any:
        value = self._values[slot]
        if not self._leads[slot]:
            return value
        return (
            [part[self._index, ...] for part in value]
            if isinstance(value, list)
            else value[self._index, ...]
        )
