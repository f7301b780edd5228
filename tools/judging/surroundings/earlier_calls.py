"""Finds outputs that depend on memory which earlier calls of the candidate left on the device."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from kernelwright.tools.expected.prepared_problem import ExpectedOutputs
from kernelwright.tools.report import Cheat, Failed, Failure, Fault, clean_text

LATER_CALLS = ((30, 99), (100, 2_000), (20_000, 100_000))
"""Ranges of numbers of calls to skip, if memory changes at every call: lowest, and bound."""
MAX_MIXTURES = 16
"""Maximum number of mixtures of two states of the memory at which the output is compared."""
MAX_MESSAGE = 700


class EarlierCalls:
    """Changes the memory that a candidate keeps between calls, and compares the output of the next call."""

    def __init__(
        self,
        ask: Callable[[dict[str, Any]], dict[str, Any]],
        check: Callable[[ExpectedOutputs], Any],
    ) -> None:
        """ask: sends a message to the replayer and returns its reply. check: makes a call and compares its output.
        Raises Failed if it is wrong.
        """
        self._ask, self._check = ask, check

    def examine(
        self, first: ExpectedOutputs, other: Callable[[], ExpectedOutputs], seed: int
    ) -> bool:
        """Returns whether the kept memory changes at every call, even on equal inputs.

        first, other: two draws of inputs. seed: for the numbers of calls to skip. Raises Failed if an output is wrong.
        """
        if not self._note()["kept"]:
            return False
        moved = False
        for _ in range(2):
            self._check(first)
            moved = bool(self._note().get("moved"))
        if moved:
            self._many_calls_later(first, seed)
        else:
            self._over_mixed_memory(first, other())
        return moved

    def _note(self) -> dict[str, Any]:
        return {"kept": False, **self._ask({"do": "note_kept"})}

    def _many_calls_later(self, first: ExpectedOutputs, seed: int) -> None:
        """Advances memory that changes at each call, such as a counter, by as many changes as calls are skipped."""
        rng = random.Random(seed)
        for times in [rng.randrange(*bounds) for bounds in LATER_CALLS]:
            self._ask({"do": "advance_kept", "times": times})
            self._require_right(
                first, f"wrong {times:,} calls later, by what it keeps between calls"
            )

    def _over_mixed_memory(self, first: ExpectedOutputs, other: ExpectedOutputs) -> None:
        """Mixes the states of the memory after calls on two draws, if it depends on the inputs."""
        self._check(other)
        if not self._note().get("changed"):
            return
        self._check(first)
        self._note()
        for part in range(MAX_MIXTURES):
            if not self._ask({"do": "mix_kept", "part": part}).get("mixed"):
                return
            self._require_right(first, "gives back what an earlier call kept")

    def _require_right(self, first: ExpectedOutputs, accusation: str) -> None:
        try:
            self._check(first)
        except Failed as failed:
            message = clean_text(f"{accusation}: {failed.failure.message}", MAX_MESSAGE)
            raise Failed(Failure(fault=Fault.CHEAT, cheat=Cheat.CACHE, message=message)) from failed
