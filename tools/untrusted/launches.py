"""Counts a candidate's own launches, and can turn them off: if the output stays right without them, they were a decoy."""

from __future__ import annotations

import contextlib
import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from tools.untrusted import graphs
from tools.untrusted.kernel_names import foreign_arguments, foreign_names, remember


class Launches:
    """Installed once in a candidate's process, before its text is read."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.hashes: dict[str, set[str]] = {}
        self.suppressed = False
        self.during: Callable[[Any], contextlib.AbstractContextManager[None]] = lambda arguments: (
            contextlib.nullcontext()
        )
        """Entered round each launch with its arguments: what the launcher does is not the candidate's host code."""
        self.foreign: list[str] = []
        """What interpreted kernels name that is no Triton: there a kernel is plain Python, and anything could work inside."""

    def install(self, *, interpreted: bool) -> None:
        if interpreted:
            from triton.runtime.interpreter import InterpretedFunction as Kernel
        else:
            from triton.runtime.jit import JITFunction as Kernel
        original, launches = Kernel.run, self
        if interpreted:
            remember()
            Kernel.rewrite = self._inspected(Kernel.rewrite)

        def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
            if warmup:
                return original(self, *args, grid=grid, warmup=True, **kwargs)
            if interpreted:
                grid = launches.before_interpreting(self, args, kwargs, grid)
                if graphs.capturing():
                    return graphs.keep(lambda: run(self, *args, grid=grid, warmup=False, **kwargs))
            with launches.during((args, kwargs)):
                if launches.suppressed:
                    launches.note(self.__name__, None)
                    return None if interpreted else original(self, *args, grid=grid, warmup=True, **kwargs)
                kernel = original(self, *args, grid=grid, warmup=False, **kwargs)
            launches.note(self.__name__, kernel)
            return kernel

        Kernel.run = run

    def before_interpreting(self, kernel: Any, args: Any, kwargs: dict[str, Any], grid: Any) -> Any:
        """Looks at what else would run while contents are open: functions among the arguments, hooks, a grid that is computed. Gives the grid."""
        self.foreign += foreign_arguments((*args, *kwargs.values())) + ["a pre-run hook"] * bool(kernel.pre_run_hooks)
        if not callable(grid):
            return grid
        known = inspect.signature(kernel.fn).parameters
        bound = inspect.signature(kernel.fn).bind(*args, **{k: v for k, v in kwargs.items() if k in known})
        bound.apply_defaults()
        return grid(dict(bound.arguments))

    def _inspected(self, rewrite: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The interpreter's rewriting of a kernel, which looks at what went in and at what came out."""

        def inspected(kernel: Any) -> Any:
            rewritten = rewrite(kernel)
            self.foreign += foreign_names(kernel.fn) + foreign_names(rewritten, rewritten=rewritten is not kernel.fn)
            return rewritten

        return inspected

    def note(self, name: str, kernel: Any) -> None:
        self.counts[name] += 1
        if (digest := getattr(kernel, "hash", None)) is not None:
            self.hashes.setdefault(name, set()).add(str(digest))

    @contextlib.contextmanager
    def counting(self) -> Iterator[Counter[str]]:
        """The launches made inside, by exact name."""
        before = self.counts.copy()
        seen: Counter[str] = Counter()
        try:
            yield seen
        finally:
            seen.update(self.counts - before)

    @contextlib.contextmanager
    def off(self) -> Iterator[None]:
        self.suppressed = True
        try:
            yield
        finally:
            self.suppressed = False
