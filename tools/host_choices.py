"""Report values about the outcomes of a candidate's host code."""

from __future__ import annotations

from kernelwright.tools.faults import Value


class HostChoice(Value):
    """A condition, look-up, handler or read of host code with a single outcome in all traces, and
    possibly others."""

    line: int = 0
    """Line in the candidate's file; 0 for several lines."""
    text: str
    never: str
    """Missing outcome: `true`, `false`, `another value`, `handled`, `without an exception` or
    `taken`; `varied` for a value read from the surroundings."""

    @property
    def description(self) -> str:
        """Returns the choice in a line."""
        location = f"line {self.line} of the host code" if self.line else "the host code"
        return f"{location} was never {self.never}: {self.text}"


MOVES_ON = HostChoice(text="what it keeps changes at every call", never="seen in another state")
"""Choice of a candidate whose memory on the device changes at every call: a counter, a random
number generator."""


def told_choices(choices: tuple[HostChoice, ...]) -> str:
    """Returns the first choice in words, and the number of others; empty without choices."""
    if not choices:
        return ""
    more = f", and {len(choices) - 1} more" if len(choices) > 1 else ""
    return f"{choices[0].description}{more}"
