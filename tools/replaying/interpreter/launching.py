"""Launches the kernels of a trace under Triton's interpreter, on a CPU, in a process of its own.

The programs of a grid run in an order drawn from the call's seed. Every memory access is checked
(guarded_memory.py), and programs see each other's writes only as far as a GPU promises
(races.py). An operation without interpretation raises NotInterpreted, which is no fault of the
candidate.

Example: `add[(4,)](x, y, out, 1000, BLOCK=256)`, step by step:

1. The trace names the kernel's key, the grid (4, 1, 1), and {"x": tensor 0, "y": tensor 1,
   "out": tensor 2, "n": 1000}; BLOCK=256 is a constant of the specialisation.
2. arguments.py turns the tensors into uint64 addresses of type `*fp32`, and 1000 into an int32;
   data_dependence.py marks all of them ARGUMENT.
3. extents.py sorts the address ranges of the call's tensors; a Guard with these ranges becomes
   the current guard.
4. The kernel runs once for program 2 (the first of the drawn order 2, 0, 3, 1) and is recorded:
   the list of numpy operations, with slots for values (recording/).
5. The other programs run together: the record is replayed on arrays with a leading axis of
   programs, of shape (programs, 256). Each load and store passes the guard; masked lanes
   (i >= 1000) are skipped.
6. If a program writes where another reads or writes, the batch is undone. The grid runs again
   program by program, with Races: an unordered read returns either value, by the seed. If
   programs wait for each other, the grid is restored and run once more by Interleaving, in
   threads which take turns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelwright.tools.compiling.text.atomic_results import uses_atomic_results
from kernelwright.tools.compiling.text.kernel_text import Rebuilt, value
from kernelwright.tools.replaying.interpreter import guarded_memory
from kernelwright.tools.replaying.interpreter.arguments import KernelParameters
from kernelwright.tools.replaying.interpreter.comparisons import data_dependence
from kernelwright.tools.replaying.interpreter.extents import Extents, TensorTable
from kernelwright.tools.replaying.interpreter.guarded_memory import Guard
from kernelwright.tools.replaying.interpreter.interleaving import Interleaving
from kernelwright.tools.replaying.interpreter.open_choices import open_order
from kernelwright.tools.replaying.interpreter.races import NeedsInterleaving, Program, Races
from kernelwright.tools.replaying.interpreter.recording.batch_guard import BatchGuard
from kernelwright.tools.replaying.interpreter.recording.batches import MIN_BATCHED_PROGRAMS, Batches
from kernelwright.tools.replaying.interpreter.recording.programs import Programs, form_of
from kernelwright.tools.replaying.interpreter.recording.watched_language import letting_others_run
from kernelwright.tools.trace.reinterpreted import Table, forged_trace
from kernelwright.tools.trace.trace import Kernel

if TYPE_CHECKING:
    pass

MAX_RECORDS = 64
"""Maximum number of records per kernel (one for each form of arguments)."""
MAX_PROGRAMS_AT_ONCE = 1 << 14
"""Programs whose places in the grid are worked out together."""
WITHOUT_BARRIER = (
    "an atomic operation hands on what several threads stored, and no tl.debug_barrier() lies between: "
    "whether another program sees it is not decided without a GPU"
)
MAX_KNOWN_KERNELS = 64
"""Maximum number of kernels of one candidate which are cached for later traces."""


class Interpreted:
    """Kernels of one trace. `begin_call` draws the order of programs; `read_outside` lists reads
    outside of tensors.
    """

    def __init__(
        self, kernels: Mapping[str, Kernel], rebuilt: Rebuilt, before: Interpreted | None = None
    ) -> None:
        """Rebuilds every kernel. Raises Failed for a text without a kernel, NotInterpreted for a
        kernel that needs a GPU.

        before: kernels of another trace of the same candidate, rebuilt from the same texts.
        Kernels which the interpreter cannot distinguish from them are reused, with their records.
        """
        self._rebuilt_kernels: dict[str, _Kernel] = (
            {} if before is None else before._rebuilt_kernels
        )
        if len(self._rebuilt_kernels) > MAX_KNOWN_KERNELS:
            self._rebuilt_kernels = {}
        self._kernels = {key: self._kernel(kernel, rebuilt) for key, kernel in kernels.items()}
        self._random = Random(0)
        self.read_outside: list[str] = []
        self.undecided: set[str] = set()
        """Behaviour of launches which may differ on a GPU."""

    def _kernel(self, kernel: Kernel, rebuilt: Rebuilt) -> _Kernel:
        form = repr(
            kernel.with_(attributes=())
        )  # what divides an argument is told to compilers alone
        if (cached := self._rebuilt_kernels.get(form)) is not None:
            return cached.again()
        rebuilt_kernel = self._rebuilt_kernels[form] = _Kernel(kernel, rebuilt)
        return rebuilt_kernel

    def begin_call(self, shuffle: int) -> None:
        """shuffle: the seed of this call's orders."""
        self._random = Random(shuffle)
        open_order.begin_call(shuffle)
        self.read_outside = []
        self.undecided = set()

    def launch(
        self, key: str, grid: tuple[int, int, int], args: Mapping[str, Any], table: Table
    ) -> None:
        """Runs every program of the grid.

        Raises Failed, OutOfBounds, NotInterpreted, and whatever the kernel raises.
        """
        if (kernel := self._kernels.get(key)) is None:
            raise forged_trace("launches a kernel that is not there")
        if min(grid) < 0:
            raise forged_trace("launches a grid of fewer than no programs")
        if kernel.launch(grid, args, table, self._random, self.read_outside):
            self.undecided.add(f"{kernel.name}: {WITHOUT_BARRIER}")


class _Kernel:
    """Rebuilt specialisation of a kernel, with its records."""

    def __init__(self, kernel: Kernel, rebuilt: Rebuilt) -> None:
        self._records: dict[Any, Programs] = {}
        self._function = rebuilt[kernel.function].fn
        self.name = str(self._function.__name__)
        try:
            constants = {tuple(path): value(form, rebuilt) for path, form in kernel.constants}
        except ValueError as error:
            raise forged_trace(f"has a constant of a kernel of no known form: {error}") from error
        self._arguments = KernelParameters(
            self._function, kernel.signature, constants, kernel.fields
        )
        self._options = _options(kernel)
        self._uses_atomic_results = any(map(uses_atomic_results, rebuilt.texts(kernel.function)))
        self._in_turns = False

    def again(self) -> _Kernel:
        """Makes the same kernel ready for another trace."""
        self._in_turns = False
        for record in self._records.values():
            record.opened()
        return self

    def launch(
        self,
        grid: tuple[int, int, int],
        args: Mapping[str, Any],
        table: Table,
        random: Random,
        noted: list[str],
    ) -> bool:
        """Runs all programs of one launch. Returns whether a program reads stores of several
        threads of another program, published without a barrier. Raises Failed if a program fails.
        """
        arguments = self._arguments.values(args)
        data_dependence.mark_arguments(arguments.values())
        programs = math.prod(grid)
        if not programs:
            return False
        extents = table.extents() if isinstance(table, TensorTable) else Extents(table.values())
        guard = Guard(extents, self.name)
        guarded_memory.current.append(guard)
        _builder().options = self._options
        try:
            if programs == 1:
                self._run_one(grid, arguments)
            else:
                self._run_many(grid, arguments, random, guard)
        finally:
            guarded_memory.current.pop()
            noted.extend(guard.read_outside[:1])
        return guard.races is not None and guard.races.hands_on_without_barrier

    def _run_one(self, grid: tuple[int, int, int], arguments: dict[str, Any]) -> None:
        builder = _builder()
        builder.grid_dim, builder.grid_idx = grid, (0, 0, 0)
        program = self._program(arguments, 1)
        with np.errstate(all="ignore"):
            program()

    def _program(self, arguments: dict[str, Any], count: int) -> Callable[[], None]:
        """Returns a function that runs one of `count` programs, from a record if recording pays
        off.
        """
        function, record_and_handles = self._function, self._record(arguments, count)
        if record_and_handles is None:
            return lambda: function(**arguments)
        record, handles = record_and_handles
        return lambda: record.run(function, arguments, handles)

    def _record(self, arguments: dict[str, Any], count: int) -> tuple[Programs, list[Any]] | None:
        """Returns the record for a launch of `count` programs, and the handles of its arguments;
        None if not worth a record.
        """
        if (form_and_handles := form_of(arguments)) is None:
            return None
        form, handles = form_and_handles
        record = (
            self._records.setdefault(form, Programs()) if len(self._records) < MAX_RECORDS else None
        )
        return None if record is None or not record.begin(count) else (record, handles)

    def _run_many(
        self, grid: tuple[int, int, int], arguments: dict[str, Any], random: Random, guard: Guard
    ) -> None:
        if not self._in_turns:
            if self._run_together(grid, arguments, random, guard):
                return
            # Programs one after the other, with the happens-before order tracked.
            guard.races = self._races(guard, random, interleaved=False)
            try:
                self._run_in_order(grid, arguments, random, guard.races)
                return
            except NeedsInterleaving:
                # Programs wait for each other: undo their writes, and interleave from now on.
                guard.races.restore()
                self._in_turns = True
        self._run_in_turns(grid, arguments, random, guard)

    def _races(self, guard: Guard, random: Random, *, interleaved: bool) -> Races:
        return Races(
            guard.extents,
            random,
            interleaved=interleaved,
            uses_atomic_results=self._uses_atomic_results,
        )

    def _run_together(
        self, grid: tuple[int, int, int], arguments: dict[str, Any], random: Random, guard: Guard
    ) -> bool:
        """Runs programs in batches. Returns whether this worked; if not, memory and `random` are
        unchanged.
        """
        count, builder, function = math.prod(grid), _builder(), self._function
        if (
            count < MIN_BATCHED_PROGRAMS
            or (record_and_handles := self._record(arguments, count)) is None
        ):
            return False
        record, handles = record_and_handles
        builder.grid_dim = grid

        def enter(program: Program) -> None:
            builder.grid_idx = program.grid_index

        def run() -> None:
            record.run(function, arguments, handles)

        # First attempt: overlap between programs is checked per storage. Second attempt: per element,
        # if the first one found that programs share a storage.
        for _ in range(2):
            if record.apart:
                return False
            followed = record.follows_elements
            state = random.getstate()
            together = BatchGuard(guard.extents, self.name, element_by_element=followed)
            guarded_memory.current.append(together)
            try:
                with np.errstate(all="ignore"):
                    done = Batches(record, together, enter, run, handles).run_all(
                        _shuffled(grid, random)
                    )
            finally:
                guarded_memory.current.pop()
            if done:
                guard.read_outside += together.read_outside
                return True
            random.setstate(state)
            if followed or not record.follows_elements:
                return False
        return False

    def _run_in_order(
        self, grid: tuple[int, int, int], arguments: dict[str, Any], random: Random, races: Races
    ) -> None:
        builder = _builder()
        run = self._program(arguments, math.prod(grid))
        builder.grid_dim = grid
        with np.errstate(all="ignore"):
            for program in _shuffled(grid, random):
                builder.grid_idx = program.grid_index
                races.begin(program)
                run()

    def _run_in_turns(
        self, grid: tuple[int, int, int], arguments: dict[str, Any], random: Random, guard: Guard
    ) -> None:
        builder = _builder()
        builder.grid_dim = grid
        guard.races = races = self._races(guard, random, interleaved=True)

        def enter(program: Program) -> None:
            builder.grid_idx = program.grid_index

        run_one = self._program(arguments, math.prod(grid))

        def run(program: Program) -> None:
            with np.errstate(all="ignore"):
                run_one()

        turns = Interleaving(_shuffled(grid, random), run, enter, random, races)
        guard.turn = letting_others_run(turns.turn)
        turns.run_all()


def _options(kernel: Kernel) -> Any:
    """The interpreter's, and the number of warps, which a kernel may ask for."""
    options = replace(_builder().options)
    warps = kernel.options.get("num_warps", 4)
    object.__setattr__(options, "num_warps", warps if type(warps) is int else 4)
    return options


def _builder() -> Any:
    from triton.runtime import interpreter

    return interpreter.interpreter_builder


def _shuffled(grid: tuple[int, int, int], random: Random) -> Iterator[Program]:
    """Yields every program once, in an order drawn from the seed: a permutation of a small grid,
    a fixed stride through a large grid.
    """
    count = math.prod(grid)
    if count <= 4096:
        shuffled = list(range(count))
        random.shuffle(shuffled)
        order = iter(shuffled)
    else:
        # A stride without a common divisor with `count` visits every program once.
        step = random.randrange(count // 3, count)
        while math.gcd(step, count) != 1:
            step += 1
        begin = random.randrange(count)
        order = ((begin + i * step) % count for i in range(count))
    _, ny, nz = grid
    while numbers := list(islice(order, MAX_PROGRAMS_AT_ONCE)):
        every = np.array(numbers)
        axes = (every // (ny * nz), every // nz % ny, every % nz)
        yield from map(Program, numbers, zip(*(axis.tolist() for axis in axes), strict=True))
