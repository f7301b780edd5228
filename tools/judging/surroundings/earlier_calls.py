"""Whether an answer follows what earlier calls have left on the device."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from kernelwright.tools.expected.prepared_problem import ExpectedOutputs
from kernelwright.tools.report import Cheat, Failed, Failure, Fault, clean_text

LATER_CALLS = ((30, 99), (100, 2_000), (20_000, 100_000))
"""How many calls later the answer is looked at where something kept changes from call to call: least and most."""
MAX_MIXTURES = 16
"""Mixtures of two states of what is kept that the answer is looked at over."""
MAX_MESSAGE = 700


class EarlierCalls:
    """Changes what a candidate keeps between calls, and looks at the answer to the next one."""

    def __init__(
        self,
        ask: Callable[[dict[str, Any]], dict[str, Any]],
        check: Callable[[ExpectedOutputs], Any],
    ) -> None:
        """ask: sends a message to the replayer. check: makes a call and compares its answer. Raises Failed."""
        self._ask, self._check = ask, check

    def examine(
        self, first: ExpectedOutputs, other: Callable[[], ExpectedOutputs], seed: int
    ) -> bool:
        """Returns whether what is kept changes at every call.

        first, other: two draws of inputs. seed: of the numbers of calls. Raises Failed where the answer is wrong.
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
        """What changes at each call, as a counter does, is moved on as if there had been many more calls."""
        rng = random.Random(seed)
        for times in [rng.randrange(*bounds) for bounds in LATER_CALLS]:
            self._ask({"do": "advance_kept", "times": times})
            self._require_right(
                first, f"wrong {times:,} calls later, by what it keeps between calls"
            )

    def _over_mixed_memory(self, first: ExpectedOutputs, other: ExpectedOutputs) -> None:
        """What follows the inputs is put together of what calls on two draws have left."""
        self._check(other)
        if not self._note().get("changed"):
            return
        self._check(first)
        self._note()
        for part in range(MAX_MIXTURES):
            if not self._ask({"do": "mix_kept", "part": part}).get("mixed"):
                return
            self._require_right(first, "gives back what an earlier call kept")

    def _require_right(self, first: ExpectedOutputs, told: str) -> None:
        try:
            self._check(first)
        except Failed as failed:
            message = clean_text(f"{told}: {failed.failure.message}", MAX_MESSAGE)
            raise Failed(Failure(fault=Fault.CHEAT, cheat=Cheat.CACHE, message=message)) from failed
