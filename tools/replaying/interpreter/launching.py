"""Launches of a trace under Triton's interpreter, from the kernels' texts: on a CPU, in a process of its own.

A grid's programs run in an order of the call's seed. Every access to memory is checked (guarded_memory.py), and what
programs see of each other is what a GPU promises (races.py). What cannot be interpreted raises NotInterpreted, which is
no fault of the candidate.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from random import Random
from typing import Any

import numpy as np

from kernelwright.tools.compiling.text.atomic_results import uses_atomic_results
from kernelwright.tools.compiling.text.kernel_text import Rebuilt, value
from kernelwright.tools.hardware.targets import parse_target
from kernelwright.tools.replaying.interpreter import guarded_memory
from kernelwright.tools.replaying.interpreter.arguments import KernelParameters
from kernelwright.tools.replaying.interpreter.comparisons import data_dependence
from kernelwright.tools.replaying.interpreter.extents import Extents, TensorTable
from kernelwright.tools.replaying.interpreter.guarded_memory import Guard
from kernelwright.tools.replaying.interpreter.interleaving import Interleaving
from kernelwright.tools.replaying.interpreter.needs_gpu import NotInterpreted
from kernelwright.tools.replaying.interpreter.open_choices import open_order
from kernelwright.tools.replaying.interpreter.races import NeedsInterleaving, Program, Races
from kernelwright.tools.replaying.interpreter.recording.batch_guard import BatchGuard
from kernelwright.tools.replaying.interpreter.recording.batches import MIN_BATCHED_PROGRAMS, Batches
from kernelwright.tools.replaying.interpreter.recording.programs import Programs, form_of
from kernelwright.tools.replaying.interpreter.recording.watched_language import letting_others_run
from kernelwright.tools.trace.reinterpreted import Table, forged_trace
from kernelwright.tools.trace.trace import Kernel

TARGET = "sm_90"
"""What interpreted kernels are told that they run on: the target that candidates are traced for by default."""
MAX_RECORDS = 64
"""Forms of arguments of one kernel that are told apart."""
MAX_PROGRAMS_AT_ONCE = 1 << 14
"""Programs whose places in the grid are worked out together."""
WITHOUT_BARRIER = (
    "an atomic operation hands on what several threads stored, and no tl.debug_barrier() lies between: "
    "whether another program sees it is not decided without a GPU"
)
MAX_KNOWN_KERNELS = 64
"""Kernels of one candidate that are kept for its later traces."""


class Interpreted:
    """The kernels of one trace. `begin_call` sets the order of programs; `read_outside` says what its launches read
    beside their tensors.
    """

    def __init__(
        self, kernels: Mapping[str, Kernel], rebuilt: Rebuilt, before: Interpreted | None = None
    ) -> None:
        """Rebuilds every kernel. Raises Failed for a text that is no kernel, NotInterpreted for one that only a GPU
        runs. before: of another trace of the same candidate, rebuilt from the same texts: kernels of that one and of
        those before it which an interpreter does not tell apart are used again, with what was recorded of them.
        """
        self._known: dict[str, _Kernel] = {} if before is None else before._known
        if len(self._known) > MAX_KNOWN_KERNELS:
            self._known = {}
        self._kernels = {key: self._kernel(kernel, rebuilt) for key, kernel in kernels.items()}
        self._random = Random(0)
        self.read_outside: list[str] = []
        self.undecided: set[str] = set()
        """What its launches do that a GPU may do otherwise."""

    def _kernel(self, kernel: Kernel, rebuilt: Rebuilt) -> _Kernel:
        form = repr(
            kernel.with_(attributes=())
        )  # what divides an argument is told to compilers alone
        if (known := self._known.get(form)) is not None:
            return known.again()
        made = self._known[form] = _Kernel(kernel, rebuilt)
        return made

    def begin_call(self, shuffle: int) -> None:
        """shuffle: the seed of this call's orders."""
        self._random = Random(shuffle)
        open_order.begin_call(shuffle)
        self.read_outside, self.undecided = [], set()

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
    """One specialisation."""

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
        """Runs all programs of one launch. Gives whether one of them reads what several threads of another one stored,
        handed on without a barrier. Raises Failed where one of them does something wrong.
        """
        given = self._arguments.values(args)
        data_dependence.mark_arguments(given.values())
        programs = math.prod(grid)
        if not programs:
            return False
        extents = table.extents() if isinstance(table, TensorTable) else Extents(table.values())
        guard = Guard(extents, self.name)
        guarded_memory.current.append(guard)
        _builder().options = self._options
        try:
            if programs == 1:
                self._run_one(grid, given)
            else:
                self._run_many(grid, given, random, guard)
        finally:
            guarded_memory.current.pop()
            noted.extend(guard.read_outside[:1])
        return guard.races is not None and guard.races.hands_on_without_barrier

    def _run_one(self, grid: tuple[int, int, int], given: dict[str, Any]) -> None:
        builder = _builder()
        builder.grid_dim, builder.grid_idx = grid, (0, 0, 0)
        program = self._program(given, 1)
        with np.errstate(all="ignore"):
            program()

    def _program(self, given: dict[str, Any], count: int) -> Callable[[], None]:
        """What runs one of `count` programs of a launch: from a record where that is worth it."""
        function, found = self._function, self._record(given, count)
        if found is None:
            return lambda: function(**given)
        record, handles = found
        return lambda: record.run(function, given, handles)

    def _record(self, given: dict[str, Any], count: int) -> tuple[Programs, list[Any]] | None:
        """The record for a launch of `count` programs, where it is worth one, and the handles of its arguments."""
        if (found := form_of(given)) is None:
            return None
        form, handles = found
        record = (
            self._records.setdefault(form, Programs()) if len(self._records) < MAX_RECORDS else None
        )
        return None if record is None or not record.begin(count) else (record, handles)

    def _run_many(
        self, grid: tuple[int, int, int], given: dict[str, Any], random: Random, guard: Guard
    ) -> None:
        if not self._in_turns:
            if self._run_together(grid, given, random, guard):
                return
            guard.races = self._races(guard, random, interleaved=False)
            try:
                self._run_in_order(grid, given, random, guard.races)
                return
            except NeedsInterleaving:
                guard.races.restore()
                self._in_turns = True
        self._run_in_turns(grid, given, random, guard)

    def _races(self, guard: Guard, random: Random, *, interleaved: bool) -> Races:
        return Races(
            guard.extents,
            random,
            interleaved=interleaved,
            uses_atomic_results=self._uses_atomic_results,
        )

    def _run_together(
        self, grid: tuple[int, int, int], given: dict[str, Any], random: Random, guard: Guard
    ) -> bool:
        """Many programs at a time; whether they could be. Where not, memory and `random` are as they were before."""
        count, builder, function = math.prod(grid), _builder(), self._function
        if count < MIN_BATCHED_PROGRAMS or (found := self._record(given, count)) is None:
            return False
        record, handles = found
        builder.grid_dim = grid

        def enter(program: Program) -> None:
            builder.grid_idx = program.place

        def run() -> None:
            record.run(function, given, handles)

        for _ in range(2):  # the second time element by element
            if record.apart:
                return False
            followed, state = record.follows_elements, random.getstate()
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
        self, grid: tuple[int, int, int], given: dict[str, Any], random: Random, races: Races
    ) -> None:
        builder, run = _builder(), self._program(given, math.prod(grid))
        builder.grid_dim = grid
        with np.errstate(all="ignore"):
            for program in _shuffled(grid, random):
                builder.grid_idx = program.place
                races.begin(program)
                run()

    def _run_in_turns(
        self, grid: tuple[int, int, int], given: dict[str, Any], random: Random, guard: Guard
    ) -> None:
        builder = _builder()
        builder.grid_dim = grid
        guard.races = races = self._races(guard, random, interleaved=True)

        def enter(program: Program) -> None:
            builder.grid_idx = program.place

        run_one = self._program(given, math.prod(grid))

        def run(program: Program) -> None:
            with np.errstate(all="ignore"):
                run_one()

        turns = Interleaving(_shuffled(grid, random), run, enter, random, races)
        guard.turn = letting_others_run(turns.turn)
        turns.run_all()


def _options(kernel: Kernel) -> Any:
    """The interpreter's, and the number of warps, which a kernel may ask for."""
    made = replace(_builder().options)
    warps = kernel.options.get("num_warps", 4)
    object.__setattr__(made, "num_warps", warps if type(warps) is int else 4)
    return made


def _builder() -> Any:
    from triton.runtime import interpreter

    return interpreter.interpreter_builder


def _shuffled(grid: tuple[int, int, int], random: Random) -> Iterator[Program]:
    """Every program once, in an order of the seed: all orders of a small grid, a walk by a fixed step over a large
    one.
    """
    count = math.prod(grid)
    if count <= 4096:
        shuffled = list(range(count))
        random.shuffle(shuffled)
        order = iter(shuffled)
    else:
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


_MALLOC_PARAMETERS = ((-3, 32 << 20), (-1, 64 << 20))
"""M_MMAP_THRESHOLD and M_TRIM_THRESHOLD (glibc, malloc.h)."""
_installed: list[bool] = []


def install() -> None:
    """Makes this process an interpreter, before any kernel is rebuilt; the process is of no other use afterwards. The
    second time it does nothing.
    """
    from kernelwright.tools.compiling.text import dynamic_values, vocabulary
    from kernelwright.tools.replaying.interpreter import language_speedups, scalar_functions
    from kernelwright.tools.replaying.interpreter import repairs as interpreter_repairs
    from kernelwright.tools.replaying.interpreter.libdevice import provide_libdevice
    from kernelwright.tools.replaying.interpreter.number_formats import bfloat16 as interpreter_bf16
    from kernelwright.tools.replaying.interpreter.number_formats import float8 as interpreter_float8
    from kernelwright.tools.replaying.interpreter.open_choices import tree_reductions
    from kernelwright.tools.replaying.interpreter.recording.watched_language import recorded

    if _installed:
        return
    _installed.append(True)
    _keep_freed_memory()
    warnings.simplefilter("ignore")  # of NumPy, at numbers that are a candidate's own
    for module in vocabulary.MODULES:
        _ask_once(vocabulary, module)
    vocabulary.value_attributes()
    vocabulary.dtypes()
    for change in interpreter_repairs.REPAIRS:
        change()
    interpreter_bf16.install()
    interpreter_float8.install()
    for change in (*language_speedups.SPEEDUP_PATCHES, *interpreter_repairs.SPEEDUP_PATCHES):
        change()
    language_speedups.call_builtins_at_once()
    language_speedups.call_extra_builtins(
        language_speedups.extra_modules(vocabulary.MODULES - vocabulary.LIBDEVICE)
    )
    provide_libdevice()
    tree_reductions.install()
    scalar_functions.install()
    dynamic_values.times_of_loop = recorded("times_of_loop", dynamic_values.times_of_loop)
    interpreter_bf16.install_reductions()
    guarded_memory.install()
    _refuse_what_needs_a_gpu()
    data_dependence.install()
    pretend_to_compile_for(TARGET)


def _keep_freed_memory() -> None:
    """Arrays of some hundred kilobytes are made from memory that was freed before, not mapped anew and cleared page by
    page by the system: that takes longer than the arithmetic on them. Does nothing without the GNU C library.
    """
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter, value in _MALLOC_PARAMETERS:
            mallopt(parameter, value)


def rewrite_device_functions() -> None:
    """Reads and rewrites Triton's own device functions, as `tl.sum`, which each process would do at its first use of
    each.
    """
    from triton.language import core, math, random, standard
    from triton.runtime.interpreter import InterpretedFunction

    for module in (core, math, random, standard):
        for found in list(vars(module).values()):
            if isinstance(found, InterpretedFunction):
                found.rewrite()


def _ask_once(vocabulary: Any, module: str) -> None:
    """What a kernel may name of a module is found out before the interpreter changes it."""
    try:
        vocabulary.members(module)
    except ImportError:
        return


def pretend_to_compile_for(target: str) -> None:
    """Kernels that ask what they are compiled for (`tl.target_info.is_cuda()`) are told of that GPU, as the compiler
    tells them: one that is asked otherwise here would not be the one that is compiled.
    """
    from triton.language import target_info

    found = parse_target(target).gpu_target()
    target_info.current_target = lambda: found


def _refuse_what_needs_a_gpu() -> None:
    from triton.runtime import interpreter

    def refuse(what: str) -> Any:
        def call(self: Any, *_: Any, **__: Any) -> Any:
            raise NotInterpreted(f"{what} is not interpreted")

        return call

    builder = interpreter.InterpreterBuilder
    builder.create_inline_asm = refuse("inline assembly")
    builder.create_extern_elementwise = refuse("a function of an external library")
    builder.__getattr__ = _missing


def _missing(self: Any, name: str) -> Any:
    """What the interpreter's builder does not have is an operation that only a GPU does."""
    if name.startswith(("create_", "get_")):
        raise NotInterpreted(f"{name.partition('_')[2].replace('_', ' ')} is not interpreted")
    raise AttributeError(name)
