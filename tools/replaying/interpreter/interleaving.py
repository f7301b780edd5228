"""Interleaves the programs of one launch: at every atomic operation and volatile load another
program may continue.

Each program runs in a thread; only one thread runs at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from kernelwright.tools.replaying.interpreter.races import Program, Races

MIN_PROGRAMS = 8
"""Number of programs started at once."""
MAX_INTERLEAVED_PROGRAMS = 64
TURNS_WITHOUT_AN_END = 200
"""Turns per started program without a finished program, after which another program is started."""


MAX_TURNS = 2_000
"""Turns of one launch after which programs run one after the other, and others start only while
one waits: a chain of thousands of programs would spend most turns waiting.
"""


class Stopped(BaseException):
    """Another program of the launch has failed."""


class _Runner:
    """Thread which runs programs one after the other."""

    def __init__(self) -> None:
        self.go = threading.Lock()
        self.go.acquire()
        self.program = Program(-1, (0, 0, 0))


class Interleaving:
    """Runs all programs of a launch."""

    def __init__(
        self,
        programs: Iterator[Program],
        run: Callable[[Program], None],
        entered: Callable[[Program], None],
        random: Random,
        races: Races,
    ) -> None:
        """Prepares the launch; `run_all` starts it.

        run: runs a program from its beginning. entered: sets the interpreter's state to a
        continuing program.
        """
        self._programs = programs
        self._run = run
        self._entered = entered
        self._random = random
        self._races = races
        self._runners: list[_Runner] = []
        self._active: _Runner | None = None
        self._finished = threading.Event()
        self._error: BaseException | None = None
        self._exhausted = False
        self._idle_turns = self._turns = 0

    def run_all(self) -> None:
        """Runs all programs to their end. Raises the error of the first failing program."""
        for _ in range(MIN_PROGRAMS):
            self._begin()
        self._hand_on()
        self._finished.wait()
        if self._error is not None:
            raise self._error

    def turn(self) -> None:
        """Called by the running program: draws the program which continues, maybe the same."""
        self._turns += 1
        self._idle_turns += 1
        if (
            self._idle_turns > TURNS_WITHOUT_AN_END * len(self._runners)
            and len(self._runners) < MAX_INTERLEAVED_PROGRAMS
            and not self._exhausted
        ):
            self._idle_turns = 0
            self._begin()
        current = self._active
        assert current is not None
        # At most one thread holds the turn; it wakes its successor, then waits for its own lock.
        chosen = self._random.choice(self._runners)
        if chosen is not current:
            self._wake(chosen)
            current.go.acquire()
        if self._error is not None:
            raise Stopped
        self._races.now = current.program
        self._entered(current.program)

    # ------------------------------------------------------------------ threads
    def _begin(self) -> None:
        runner = _Runner()
        self._runners.append(runner)
        threading.Thread(target=self._work, args=(runner,), daemon=True).start()

    def _wake(self, runner: _Runner) -> None:
        self._active = runner
        runner.go.release()

    def _work(self, runner: _Runner) -> None:
        runner.go.acquire()
        try:
            while self._error is None and (program := self._next()) is not None:
                runner.program = program
                self._entered(program)
                self._races.begin(program)
                self._run(program)
                self._idle_turns = 0
                if self._turns > MAX_TURNS and len(self._runners) > 1:
                    break
        except Stopped:
            pass
        except BaseException as error:
            self._error = self._error or error
        self._runners.remove(runner)
        self._hand_on()

    def _next(self) -> Any:
        program = next(self._programs, None)
        self._exhausted = program is None
        return program

    def _hand_on(self) -> None:
        if self._runners:
            self._wake(self._random.choice(self._runners))
        else:
            self._finished.set()
