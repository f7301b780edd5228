"""What a verdict exercised of a candidate's host code, as values of a report."""

from __future__ import annotations

from kernelwright.tools.faults import Value


class HostChoice(Value):
    """A condition, look-up, handler or reading of host code that had one outcome in all traces, and may have others."""

    line: int = 0
    """Line of the candidate's file; 0 where it is no single line."""
    text: str
    never: str
    """What was not seen: the outcome `true`, `false`, `another value`, `handled`, `without an exception` or `taken`; or
    `varied`, of a value that the host code reads from its surroundings.
    """

    @property
    def description(self) -> str:
        """Returns the choice in one line."""
        where = f"line {self.line} of the host code" if self.line else "the host code"
        return f"{where} was never {self.never}: {self.text}"


MOVES_ON = HostChoice(text="what it keeps changes at every call", never="seen in another state")
"""Of a candidate whose memory on the device is another one after each call: a counter, a generator of numbers."""


def told_choices(choices: tuple[HostChoice, ...]) -> str:
    """Returns the first choice in words, and how many more there are; empty where there is none."""
    if not choices:
        return ""
    more = f", and {len(choices) - 1} more" if len(choices) > 1 else ""
    return f"{choices[0].description}{more}"
