"""The host side of a draft as values: launches, loops round launches, and what else forward does."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from kernelwright.policies.inductor.writing.kernels import LoweredKernel


@dataclass
class WrittenLaunch:
    """One launch of a kernel: what `call` passes, as text of ModelNew."""

    kernel: LoweredKernel
    arguments: dict[str, str]
    """The expression of each parameter."""
    hints: dict[str, int] | None = None
    """Extents, as the kernel has them; None where it is the kernel's only ones."""


@dataclass
class Loop:
    """A loop over a size: `for step in range(count)` round the launches of one step."""

    count: str
    step: str
    """The name of the step's number."""
    first: dict[str, str]
    """The value before the loop of each tensor that is carried."""
    rows: dict[str, str]
    """Tensor that the steps fill, a row each -> its allocation."""
    aliases: dict[str, str]
    """Names for what the steps read, where it is no name yet."""
    host: Host


@dataclass
class Host:
    """The steps of forward, in order."""

    steps: list[WrittenLaunch | Loop | ast.stmt] = field(default_factory=list)
    library: list[str] = field(default_factory=list)
    returned: list[str] = field(default_factory=list)

    def launches(self) -> list[WrittenLaunch]:
        """Yields all launches, those inside loops too."""
        inside = [
            s.host.launches() if isinstance(s, Loop) else [s]
            for s in self.steps
            if isinstance(s, Loop | WrittenLaunch)
        ]
        return [launch for some in inside for launch in some]
