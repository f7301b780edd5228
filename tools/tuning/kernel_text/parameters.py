"""The parameters of a kernel file as values: their places in the text and their legal values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum

from kernelwright.tools.report import Value

Setting = int | str
"""Value of a parameter: a number, or the name of an input precision."""


class ParameterRole(StrEnum):
    """The role of a parameter in its kernel."""

    TILE = "tile"
    """The extent of a block (`tl.arange(0, BLOCK)`): a power of two."""
    COUNT = "count"
    """Constexpr used as a count and not as an extent: GROUP_M, SPLIT_K."""
    WARPS = "num_warps"
    STAGES = "num_stages"
    CTAS = "num_ctas"
    PRECISION = "input_precision"
    """The input precision of the kernel's `tl.dot`."""


LAUNCH_OPTION_ROLES = (ParameterRole.WARPS, ParameterRole.STAGES, ParameterRole.CTAS)
"""Tunable options of a launch."""


class Site(Value):
    """Position in the text of a parameter's value, in bytes of UTF-8."""

    start: int
    end: int
    """Equal to `start` if the value is missing and must be inserted."""
    form: str = "{}"
    """The text to write there, with `{}` for the value."""


class Parameter(Value):
    """Number or precision in the text which can be changed independently."""

    name: str
    """Name such as `kernel.BLOCK_M`, with the first of the parameter's kernels."""
    role: ParameterRole
    start: Setting
    """Current value in the file; Triton's default if missing."""
    values: tuple[Setting, ...]
    """The legal ones in ascending order, the start among them."""
    sites: tuple[Site, ...]
    kernels: tuple[str, ...]
    """Kernels with launches affected by the parameter."""
    constexprs: tuple[str, ...] = ()
    """Parameters of those kernels which receive the value."""
    operands: tuple[str, ...] = ()
    """For an input precision, the pointers of the kernel through which operands are loaded; empty
    if unknown.
    """
    line: int
    """The line of its first site, from 1."""
    capped: bool = False
    """Whether the value is an upper bound, as in `min(1024, next_power_of_2(n))`."""
    places_programs: bool = False
    """Whether the kernel multiplies a program number by the value: the grid must follow."""
    config: int | None = None
    """Index of the `triton.Config` with the value in its autotune list; None elsewhere."""


Configuration = Mapping[str, Setting]
"""Values by parameter name. Missing parameters keep their start."""


class FixedNumber(Value):
    """Number which looks like a parameter but stays fixed, with the reason."""

    name: str
    line: int
    why: str


class ParameterSpace(Value):
    """Tunable parameters of a file."""

    parameters: tuple[Parameter, ...] = ()
    refused: tuple[FixedNumber, ...] = ()

    def start(self) -> dict[str, Setting]:
        """Returns the configuration in the file."""
        return {p.name: p.start for p in self.parameters}

    def named(self, name: str) -> Parameter:
        """Returns the parameter with this name. Raises KeyError."""
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter
        raise KeyError(name)

    def only(self, names: set[str]) -> ParameterSpace:
        """Returns the space of the named parameters only."""
        chosen_space: ParameterSpace = self.with_(
            parameters=tuple(p for p in self.parameters if p.name in names)
        )
        return chosen_space


def changed_settings(space: ParameterSpace, configuration: Configuration) -> dict[str, Setting]:
    """Returns the settings of a configuration which differ from the file."""
    start = space.start()
    return {name: value for name, value in sorted(configuration.items()) if value != start[name]}


def key_of(configuration: Configuration) -> str:
    """Returns a key, which is the same text for the same configuration."""
    return json.dumps(dict(sorted(configuration.items())), separators=(",", ":"))
