"""Talking with a candidate's process: every trouble on that side becomes a Failure, raised as Failed."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from tools.results import Cheat, Failed, Failure, Fault, clean_text
from tools.sandbox import BadMessage, Process, ProcessDied, ProcessTimedOut


class Conversation:
    """One candidate's process, asked one thing at a time, under one budget of seconds."""

    def __init__(self, process: Process, seconds: float) -> None:
        self.process = process
        self._until = time.monotonic() + seconds
        self._budget = seconds

    def ask(self, do: str, fds: Sequence[int] = (), *, wait: bool = True, **message: Any) -> dict[str, Any]:
        """Sends a request and gives its answer. Raises Failed."""
        nonce = self.send(do, fds, **message)
        return self.answer(nonce, do) if wait else {}

    def send(self, do: str, fds: Sequence[int] = (), **message: Any) -> str:
        """Sends a request; `answer` takes what comes back. In between the judge may compute."""
        nonce = os.urandom(12).hex()
        try:
            self.process.send({"do": do, "nonce": nonce, **message}, fds)
        except ProcessDied as death:
            raise Failed(self._death(death, do)) from death
        return nonce

    def answer(self, nonce: str, doing: str) -> dict[str, Any]:
        try:
            reply = self.process.receive(max(self._until - time.monotonic(), 0.05))
        except ProcessDied as death:
            raise Failed(self._death(death, doing)) from death
        except ProcessTimedOut as error:
            raise Failed(
                Failure(
                    fault=Fault.TIMEOUT,
                    message=f"no answer within {self._budget:g} s while the judge asked to {doing}: an endless loop, or far too slow",
                )
            ) from error
        except BadMessage as error:
            raise Failed(forged(f"the channel carried something that is no message: {error}")) from error
        if reply.get("nonce") != nonce:
            raise Failed(forged("a message on the channel does not answer what was asked"))
        self._raise_what_it_says(reply)
        return reply

    def _raise_what_it_says(self, reply: dict[str, Any]) -> None:
        try:
            for kind, event in reply["violations"]:
                raise Failed(
                    Failure(
                        fault=Fault.CHEAT,
                        cheat=Cheat(kind),
                        message=f"the candidate's own code used {clean_text(event, 80)}, which no kernel needs",
                    )
                )
            if "failure" in reply:
                raise Failed(_capped(Failure.model_validate(reply["failure"])))
        except (KeyError, TypeError, ValueError, ValidationError) as error:
            raise Failed(forged(f"an answer has not the form of one: {type(error).__name__}")) from error

    def _death(self, death: ProcessDied, doing: str) -> Failure:
        said = self.process.output.strip().splitlines()
        tail = f"; last output: {said[-1][:200]}" if said else ""
        return Failure(fault=Fault.CRASH, message=f"{death.describe()} while the judge asked to {doing}{tail}")


def forged(message: str) -> Failure:
    return Failure(fault=Fault.CHEAT, cheat=Cheat.FORGERY, message=message)


def _capped(failure: Failure) -> Failure:
    """What a candidate's process says of itself is data: faults of its own choosing, but capped text and no claim to be a mismatch."""
    return Failure(
        fault=failure.fault,
        cheat=failure.cheat,
        message=clean_text(failure.message, 700),
        where=failure.where,
        trace=clean_text(failure.trace, 2000),
    )
