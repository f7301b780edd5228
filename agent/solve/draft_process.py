"""A walled-in process that drafts: warm at the first problem, one answer a call, a refusal where it gives none."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelwright.tools.sandbox import Zygote


class DraftProcess:
    """Holds the warm process, which begins with the first call. Thread-safe."""

    def __init__(self, warm: str) -> None:
        """warm: "package.module:function", which has the process import what drafting needs."""
        self._warm_entry, self._lock = warm, Lock()
        self._zygote: Zygote | None = None

    def run(self, entry: str, payload: dict[str, Any], seconds: float) -> dict[str, Any]:
        """What `entry` answers in a process of its own; {"refused": why} where that dies, lies or is late.

        Raises InfrastructureError where no process starts.
        """
        from kernelwright.tools.sandbox import BadMessage, ProcessDied, ProcessTimedOut

        with self._warm().start(entry, payload) as process:
            try:
                return dict(process.receive(seconds))
            except ProcessTimedOut:
                return {"refused": f"no draft within {seconds:g} s", "seconds": seconds}
            except ProcessDied as death:
                said = (process.output.strip().splitlines() or [""])[-1]
                return {
                    "refused": f"the drafting process ended: {death.describe()}{f': {said}' if said else ''}"
                }
            except BadMessage as error:
                return {"refused": f"the drafting process answered nonsense: {error}"}

    def begin(self) -> None:
        """Has the warm process begin, beside whatever is done until the first call. Raises InfrastructureError."""
        self._warm()

    def _warm(self) -> Zygote:
        from kernelwright.tools.sandbox import ProcessKind, Zygote

        with self._lock:
            if self._zygote is None:
                self._zygote = Zygote(
                    ProcessKind.COMPILE, spare=False, private_scratch=True, warm=self._warm_entry
                )
            return self._zygote

    def close(self) -> None:
        """Ends the process; the next call begins another."""
        with self._lock:
            zygote, self._zygote = self._zygote, None
        if zygote is not None:
            zygote.close()
