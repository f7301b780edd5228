"""What lies round a candidate's code while it loads and runs: the modes, the mask, the pretended GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from tools.untrusted import redirect
from tools.untrusted.launches import Launches
from tools.untrusted.mask import Mask
from tools.untrusted.watched import Watched


class Surroundings:
    """One a process. On a CPU contents are masked and cuda is pretended; on a GPU neither."""

    def __init__(self, device: str, launches: Launches) -> None:
        self.device = device
        self.mask = Mask() if device == "cpu" else None
        self._launches = launches

    def open(self, things: Any) -> contextlib.AbstractContextManager[None]:
        """Real contents, for our own looks at tensors."""
        return self.mask.open(things) if self.mask else contextlib.nullcontext()

    def open_all(self) -> contextlib.AbstractContextManager[None]:
        """Real contents of all that the candidate holds."""
        return self.mask.open_all() if self.mask else contextlib.nullcontext()

    @contextlib.contextmanager
    def loading(self) -> Iterator[None]:
        """Round import and construction: what is made there is masked from its first byte."""
        with self._modes(Watched(self.device, None, self.mask)):
            yield

    @contextlib.contextmanager
    def running(self, watched: Watched | None, *, off: bool) -> Iterator[None]:
        """Round one call; `off`: the launches do nothing; without `watched` nothing is counted, guarded or masked."""
        with torch.no_grad(), self._launches.off() if off else contextlib.nullcontext(), self._modes(watched):
            yield

    def watched(self, poison: int, *, bare: bool) -> Watched:
        """bare: contents are real for all to see; only to find out whether a candidate reads them."""
        return Watched(torch.device(self.device).type, poison, None if bare else self.mask)

    @contextlib.contextmanager
    def _modes(self, watched: Watched | None) -> Iterator[None]:
        if watched is None:
            with redirect.OnCpu() if self.device == "cpu" else contextlib.nullcontext():
                yield
            return
        masked = watched.mask
        self._launches.during = lambda arguments: self._aside(watched, arguments)
        try:
            with contextlib.ExitStack() as stack:
                if self.device == "cpu":
                    stack.enter_context(redirect.OnCpu(lambda name, tensor: _read(watched, masked, name, tensor)))
                stack.enter_context(watched)
                yield
        finally:
            self._launches.during = lambda arguments: contextlib.nullcontext()

    @contextlib.contextmanager
    def _aside(self, watched: Watched, arguments: Any) -> Iterator[None]:
        """Round a launch: nothing is counted, tensors tell where they are, and the kernel's arguments hold their contents."""
        outside = redirect.outside() if self.device == "cpu" else contextlib.nullcontext()
        with watched.paused(), outside, watched.mask.open(arguments) if watched.mask else contextlib.nullcontext():
            yield


@contextlib.contextmanager
def _read(watched: Watched, mask: Mask | None, name: str, tensor: Any) -> Iterator[None]:
    watched.census.read(name)
    with mask.open(tensor) if mask else contextlib.nullcontext():
        yield
