"""Checks that launches follow a parameter, by tracing the file at another value of the parameter.

Syntax finds the numbers; the tracer shows what the host code launches for them. A tile whose grid
does not follow changes the result, and a number which never reaches a launch has no effect: both
are refused, with the reason.

Example: for `grid = (triton.cdiv(n, BLOCK),)` the trace at twice the BLOCK has half the programs,
and BLOCK is tunable; for a literal grid `(64,)` "the grid stays (64, 1, 1) while BLOCK goes from
256 to 512".
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
from kernelwright.tools.tuning.launch_facts import TracedLaunchFacts, launches_at
from kernelwright.tools.tuning.legal_values import TRITON_DEFAULTS, option_values

TraceText = Callable[[str], TracedCandidate]
"""Traces a text at the problem's own size."""
HOPPER = (9, 0)
"""Clusters of blocks exist from here on (CUDA C++ Programming Guide, Thread Block Clusters)."""


class TunableSpace(Value):
    """Parameters of a file which can be tuned for a problem."""

    space: ParameterSpace = ParameterSpace()
    launches: tuple[TracedLaunchFacts, ...] = ()
    """The launches of the unchanged file."""
    failure: Failure | None = None
    """The reason why the unchanged file launches nothing."""


def find_tunable_space(
    file: TunableFile,
    trace: TraceText,
    capability: tuple[int, int] = HOPPER,
    say: Callable[[str], None] = lambda _: None,
) -> TunableSpace:
    """Returns the parameters which reach a launch at the problem's own size, with grids that
    follow them.
    """
    candidate = trace(file.source)
    launches = launches_at(candidate.traced)
    if not launches:
        return TunableSpace(failure=next((f for f in candidate.failures if f is not None), None))
    kernels = kernels_of(parse_module(file.source))
    tunable: list[Parameter] = []
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
            tunable.append(fitted)
    return TunableSpace(
        space=ParameterSpace(parameters=tuple(tunable), refused=tuple(refused)), launches=launches
    )


def _fitted(
    parameter: Parameter, launches: Sequence[TracedLaunchFacts], capability: tuple[int, int]
) -> Parameter | str:
    """Returns the parameter as it applies to this problem, or the reason why it does not."""
    kernel_launches = [launch for launch in launches if launch.function in parameter.kernels]
    if not kernel_launches:
        return "its kernel is not launched at this problem's size"
    if parameter.role is ParameterRole.CTAS and capability < HOPPER:
        return "this target has no clusters of blocks"
    multiplies = parameter.role is ParameterRole.PRECISION
    if multiplies and not _has_fp32_operand(parameter, kernel_launches):
        return "no operand is fp32"
    if not parameter.start and parameter.role.value in TRITON_DEFAULTS:
        start = int(
            kernel_launches[0].options.get(parameter.role.value, TRITON_DEFAULTS[parameter.role])
        )
        return parameter.with_(start=start, values=option_values(parameter.role, start))
    return parameter


def _has_fp32_operand(parameter: Parameter, launches: Sequence[TracedLaunchFacts]) -> bool:
    """Returns whether an operand (any pointer, if the operands are unknown) is fp32."""
    for launch in launches:
        for name, kind in launch.types.items():
            if "fp32" in kind and (not parameter.operands or name in parameter.operands):
                return True
    return False


def _why_not(
    parameter: Parameter,
    file: TunableFile,
    trace: TraceText,
    before: Sequence[TracedLaunchFacts],
    kernels: dict[str, KernelSyntax],
) -> str:
    """Returns the reason why the launches do not follow a parameter; empty if they do."""
    if parameter.role not in (ParameterRole.TILE, ParameterRole.COUNT):
        return ""
    other_values = sorted(
        (v for v in parameter.values if v != parameter.start),
        key=lambda v: _distance(v, parameter.start),
    )
    for value in other_values:
        text = rewrite(
            file.source, ParameterSpace(parameters=(parameter,)), {parameter.name: value}
        )
        candidate = trace(text)
        after = launches_at(candidate.traced)
        if not after:
            continue  # refused by the host code at this value; another may do
        if [launch.function for launch in after] != [launch.function for launch in before]:
            return f"at {value} another kernel is launched"
        # The same kernels run in the same order: compare the launches of the parameter's kernels.
        pairs = [p for p in zip(before, after, strict=True) if p[0].function in parameter.kernels]
        if not any(
            _constants(parameter, launch) != _constants(parameter, other) for launch, other in pairs
        ):
            continue  # a cap above what the shape asks for
        for launch, other in pairs:
            if why := _grid_fault(parameter, launch, other, kernels):
                return why
        return ""
    return "no other value of it changes what is launched"


def _distance(value: Setting, start: Setting) -> tuple[float, bool]:
    """Neighbours first, the smaller before the larger."""
    candidate = float(value)
    current = float(start)
    return max(candidate / current, current / candidate), candidate > current


def _constants(parameter: Parameter, launch: TracedLaunchFacts) -> dict[str, object]:
    return {name: launch.constants.get(name) for name in parameter.constexprs} | {
        name: value for name, value in launch.options.items() if name == parameter.role.value
    }


def _grid_fault(
    parameter: Parameter,
    before: TracedLaunchFacts,
    after: TracedLaunchFacts,
    kernels: dict[str, KernelSyntax],
) -> str:
    """Returns the error in the grid of a launch after its tile was changed; empty if the grid
    fits.
    """
    kernel = kernels.get(before.function)
    if parameter.role is not ParameterRole.TILE or kernel is None or kernel.persistent:
        return ""
    for name in parameter.constexprs:
        axes = kernel.placed.get(name)
        tile = before.constants.get(name)
        other = after.constants.get(name)
        if not axes or type(tile) is not int or type(other) is not int or tile == other:
            continue
        alone = [n for n, its in kernel.placed.items() if its & axes] == [name]
        if before.grid == after.grid and before.programs > 1 and not _one_program(before, axes):
            return f"the grid stays {before.grid} while {name} goes from {tile} to {other}"
        if (
            len(axes) == 1
            and alone
            and not _same_extent(before.grid, after.grid, min(axes), tile, other)
        ):
            return f"the grid goes from {before.grid} to {after.grid}, which does not fit {name} {tile} and {other}"
    return ""


def _one_program(launch: TracedLaunchFacts, axes: set[int]) -> bool:
    """Returns whether there is a single program along these axes, which any larger tile
    preserves.
    """
    return all(launch.grid[axis] == 1 for axis in axes if axis < 3)


def _same_extent(
    before: tuple[int, int, int], after: tuple[int, int, int], axis: int, tile: int, other: int
) -> bool:
    """Returns whether some extent needs exactly the numbers of tiles before and after the change."""
    if axis > 2:
        return True
    least = max((before[axis] - 1) * tile, (after[axis] - 1) * other)
    return least < min(before[axis] * tile, after[axis] * other)
