"""Whether what is launched follows a parameter: proved by tracing the file at another value of it.

The syntax finds the numbers; the tracer says what host code then asks for. A tile whose grid does not follow computes
something else, and one whose value never reaches a launch decides nothing: both are left alone, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelwright.tools.parsing import parse_module
from kernelwright.tools.report import Failure, Value
from kernelwright.tools.tracing.client import TracedCandidate
from kernelwright.tools.tuning.kernel_text.kernel_syntax import KernelSyntax, kernels_of
from kernelwright.tools.tuning.kernel_text.parameters import (
    FixedNumber,
    Parameter,
    ParameterRole,
    ParameterSpace,
    Setting,
)
from kernelwright.tools.tuning.kernel_text.reading import TunableFile
from kernelwright.tools.tuning.kernel_text.rewriting import rewrite
from kernelwright.tools.tuning.launch_facts import LaunchFacts, launches_at
from kernelwright.tools.tuning.legal_values import TRITON_DEFAULTS, option_values

TraceText = Callable[[str], TracedCandidate]
"""Traces a text at the problem's own size."""
HOPPER = (9, 0)
"""Clusters of blocks exist from here on (CUDA C++ Programming Guide, Thread Block Clusters)."""


class TunableSpace(Value):
    """The parameters of a file that can be tuned for one problem."""

    space: ParameterSpace = ParameterSpace()
    launches: tuple[LaunchFacts, ...] = ()
    """The launches of the unchanged file."""
    failure: Failure | None = None
    """The reason why the unchanged file launches nothing."""


def find_tunable_space(
    file: TunableFile,
    trace: TraceText,
    capability: tuple[int, int] = HOPPER,
    say: Callable[[str], None] = lambda _: None,
) -> TunableSpace:
    """The parameters that reach a launch at the problem's own size, and whose grids follow them."""
    found = trace(file.source)
    launches = launches_at(found.traced)
    if not launches:
        return TunableSpace(failure=next((f for f in found.failures if f is not None), None))
    kernels = kernels_of(parse_module(file.source))
    kept: list[Parameter] = []
    refused = list(file.space.refused)
    for parameter in file.space.parameters:
        say(f"tracing {parameter.name}")
        fitted = _fitted(parameter, launches, capability)
        why = (
            fitted if isinstance(fitted, str) else _why_not(fitted, file, trace, launches, kernels)
        )
        if why:
            refused.append(FixedNumber(name=parameter.name, line=parameter.line, why=why))
        elif isinstance(fitted, Parameter):
            kept.append(fitted)
    return TunableSpace(
        space=ParameterSpace(parameters=tuple(kept), refused=tuple(refused)), launches=launches
    )


def _fitted(
    parameter: Parameter, launches: Sequence[LaunchFacts], capability: tuple[int, int]
) -> Parameter | str:
    """The parameter as this problem has it; or why it is none here."""
    own = [one for one in launches if one.function in parameter.kernels]
    if not own:
        return "its kernel is not launched at this problem's size"
    if parameter.role is ParameterRole.CTAS and capability < HOPPER:
        return "this target has no clusters of blocks"
    if parameter.role is ParameterRole.PRECISION:
        read = parameter.operands
        kinds = [
            kind for one in own for name, kind in one.types.items() if not read or name in read
        ]
        if not any("fp32" in kind for kind in kinds):
            return "no operand is fp32"
    if not parameter.start and parameter.role.value in TRITON_DEFAULTS:
        start = int(own[0].options.get(parameter.role.value, TRITON_DEFAULTS[parameter.role]))
        return parameter.with_(start=start, values=option_values(parameter.role, start))
    return parameter


def _why_not(
    parameter: Parameter, file: TunableFile, trace: TraceText, before: Sequence[LaunchFacts],
    kernels: dict[str, KernelSyntax],
) -> str:  # fmt: skip
    """Returns the reason why the launches do not follow a parameter; empty where they do."""
    if parameter.role not in (ParameterRole.TILE, ParameterRole.COUNT):
        return ""
    others = sorted(
        (v for v in parameter.values if v != parameter.start),
        key=lambda v: _distance(v, parameter.start),
    )
    for value in others:
        text = rewrite(
            file.source, ParameterSpace(parameters=(parameter,)), {parameter.name: value}
        )
        found = trace(text)
        after = launches_at(found.traced)
        if not after:
            continue  # refused by the host code at this value; another may do
        if [one.function for one in after] != [one.function for one in before]:
            return f"at {value} another kernel is launched"
        pairs = [p for p in zip(before, after, strict=True) if p[0].function in parameter.kernels]
        if not any(
            _constants(parameter, one) != _constants(parameter, other) for one, other in pairs
        ):
            continue  # a cap above what the shape asks for
        return next(
            (why for one, other in pairs if (why := _grid_fault(parameter, one, other, kernels))),
            "",
        )
    return "no other value of it changes what is launched"


def _distance(value: Setting, start: Setting) -> tuple[float, bool]:
    """Neighbours first, the smaller before the larger."""
    one, other = float(value), float(start)
    return max(one / other, other / one), one > other


def _constants(parameter: Parameter, launch: LaunchFacts) -> dict[str, object]:
    return {name: launch.constants.get(name) for name in parameter.constexprs} | {
        name: value for name, value in launch.options.items() if name == parameter.role.value
    }


def _grid_fault(
    parameter: Parameter, before: LaunchFacts, after: LaunchFacts, kernels: dict[str, KernelSyntax]
) -> str:
    """Returns the fault in the grid of one launch after the tile was changed; empty where it fits."""
    kernel = kernels.get(before.function)
    if parameter.role is not ParameterRole.TILE or kernel is None or kernel.persistent:
        return ""
    for name in parameter.constexprs:
        axes = kernel.placed.get(name)
        one, other = before.constants.get(name), after.constants.get(name)
        if not axes or type(one) is not int or type(other) is not int or one == other:
            continue
        alone = [n for n, its in kernel.placed.items() if its & axes] == [name]
        if before.grid == after.grid and before.programs > 1 and not _one_program(before, axes):
            return f"the grid stays {before.grid} while {name} goes from {one} to {other}"
        if (
            len(axes) == 1
            and alone
            and not _same_extent(before.grid, after.grid, min(axes), one, other)
        ):
            return f"the grid goes from {before.grid} to {after.grid}, which does not fit {name} {one} and {other}"
    return ""


def _one_program(launch: LaunchFacts, axes: set[int]) -> bool:
    """Whether there is one program along these axes, which any larger tile leaves as it is."""
    return all(launch.grid[axis] == 1 for axis in axes if axis < 3)


def _same_extent(
    before: tuple[int, int, int], after: tuple[int, int, int], axis: int, one: int, other: int
) -> bool:
    """Whether some extent needs so many tiles of the one kind, and so many of the other."""
    if axis > 2:
        return True
    least = max((before[axis] - 1) * one, (after[axis] - 1) * other)
    return least < min(before[axis] * one, after[axis] * other)
