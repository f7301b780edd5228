"""Host code of a draft as values: launches, loops around launches, and other statements of
forward.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from kernelwright.policies.inductor.writing.kernels import LoweredKernel


@dataclass
class WrittenLaunch:
    """Launch of a kernel with its arguments as text."""

    kernel: LoweredKernel
    arguments: dict[str, str]
    """The expression of each parameter."""
    hints: dict[str, int] | None = None
    """Extents of this launch, if its kernel has several launches; else None."""


@dataclass
class Loop:
    """Loop over a size: `for step in range(count)` around the launches of a step."""

    count: str
    step: str
    """The name of the step's number."""
    first: dict[str, str]
    """The initial value of each carried tensor."""
    rows: dict[str, str]
    """Tensor the steps fill, a row each -> its allocation."""
    aliases: dict[str, str]
    """Names for expressions the steps read."""
    host: Host


@dataclass
class Host:
    """The steps of forward, in order."""

    steps: list[WrittenLaunch | Loop | ast.stmt] = field(default_factory=list)
    library: list[str] = field(default_factory=list)
    returned: list[str] = field(default_factory=list)

    def launches(self) -> list[WrittenLaunch]:
        """Returns all launches, those inside loops too."""
        inside = [
            s.host.launches() if isinstance(s, Loop) else [s]
            for s in self.steps
            if isinstance(s, Loop | WrittenLaunch)
        ]
        return [launch for some in inside for launch in some]
