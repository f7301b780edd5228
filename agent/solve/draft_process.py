"""A sandboxed process for drafting kernels: warm from the first problem on, with an answer or a
refusal for each call.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelwright.tools.sandbox import Zygote


class DraftProcess:
    """Holds the warm process, which starts with the first call. Thread-safe."""

    def __init__(self, warm: str) -> None:
        """warm: "package.module:function", called in the new process to import the modules of
        drafting.
        """
        self._warm_entry, self._lock = warm, Lock()
        self._zygote: Zygote | None = None

    def run(self, entry: str, payload: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Returns the answer of `entry` from a forked process; {"refused": reason} for a dead or
        late process, or an invalid answer.

        Raises InfrastructureError if no process starts.
        """
        from kernelwright.tools.sandbox import BadMessage, ProcessDied, ProcessTimedOut

        with self._warm().start(entry, payload) as process:
            try:
                return dict(process.receive(seconds))
            except ProcessTimedOut:
                return {"refused": f"no draft within {seconds:g} s", "seconds": seconds}
            except ProcessDied as death:
                reason = f"the drafting process ended: {death.describe()}"
                lines = process.output.strip().splitlines()
                return {"refused": f"{reason}: {lines[-1]}" if lines else reason}
            except BadMessage as error:
                return {"refused": f"the drafting process answered nonsense: {error}"}

    def begin(self) -> None:
        """Starts the warm process in the background. Raises InfrastructureError."""
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
        """Ends the process; the next call starts another."""
        with self._lock:
            zygote, self._zygote = self._zygote, None
        if zygote is not None:
            zygote.close()
