"""A sandboxed process for drafting kernels: warm from the first problem on, with an answer or a
refusal for each call.
"""

from __future__ import annotations

import contextlib
from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelwright.tools.sandbox import Process, ProcessDied, Zygote


class DraftConversation:
    """Messages to and from a forked drafting process. Failures are answers: {"refused": reason}."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._ended = ""
        """Reason why no further message is sent; empty for a process that answers."""

    def ask(self, message: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Sends a message and returns its answer."""
        from kernelwright.tools.sandbox import ProcessDied, ProcessTimedOut

        if self._ended:
            return {"refused": self._ended}
        try:
            self._process.send(message, seconds=seconds)
        except ProcessTimedOut:
            return {"refused": f"the drafting process took no message within {seconds:g} s"}
        except ProcessDied as death:
            return self._refusal(death)
        return self.receive(seconds)

    def receive(self, seconds: float) -> dict[str, Any]:
        """Returns the next answer, within so many seconds."""
        from kernelwright.tools.sandbox import BadMessage, ProcessDied, ProcessTimedOut

        try:
            return dict(self._process.receive(seconds))
        except ProcessTimedOut:
            # A late answer would be taken for that of the next message.
            self._ended = f"the drafting process was ended: no answer within {seconds:g} s"
            self.close()
            return {"refused": f"no draft within {seconds:g} s", "seconds": seconds}
        except ProcessDied as death:
            return self._refusal(death)
        except BadMessage as error:
            return {"refused": f"the drafting process answered nonsense: {error}"}

    def _refusal(self, death: ProcessDied) -> dict[str, Any]:
        reason = f"the drafting process ended: {death.describe()}"
        lines = self._process.output.strip().splitlines()
        return {"refused": f"{reason}: {lines[-1]}" if lines else reason}

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()


class DraftProcess:
    """Holds the warm process, which starts with the first call. Thread-safe."""

    def __init__(self, warm: str) -> None:
        """warm: "package.module:function", called in the new process to import the modules of
        drafting.
        """
        self._warm_entry, self._lock = warm, Lock()
        self._zygote: Zygote | None = None

    def open(self, entry: str, payload: dict[str, Any]) -> DraftConversation:
        """Starts an entry that answers several messages. Raises InfrastructureError."""
        return DraftConversation(self._warm().start(entry, payload))

    def run(self, entry: str, payload: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Returns the answer of `entry` from a forked process; {"refused": reason} for a dead or
        late process, or an invalid answer.

        Raises InfrastructureError if no process starts.
        """
        with contextlib.closing(self.open(entry, payload)) as conversation:
            return conversation.receive(seconds)

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
