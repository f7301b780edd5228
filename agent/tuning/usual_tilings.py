"""Where to begin: tilings of products that are good on most GPUs, as configurations of one group of parameters.

They are only starts. What is best the compiler's figures, and on a GPU the clock, decide.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.agent.tuning.settings import PrecisionClass
from kernelwright.tools.tuning.kernel_text.parameters import Parameter, ParameterRole, Setting
from kernelwright.tools.tuning.legal_values import MIN_DOT_EXTENT

PRODUCT_TILINGS: tuple[tuple[int, int, int, int, int], ...] = (
    (128, 128, 64, 8, 3),
    (128, 128, 32, 8, 3),
    (128, 64, 64, 4, 3),
    (64, 128, 64, 4, 3),
    (64, 64, 64, 4, 4),
    (128, 256, 64, 8, 3),
    (128, 256, 64, 8, 2),
    (128, 256, 32, 8, 4),
    (64, 128, 32, 8, 3),
    (64, 64, 32, 4, 4),
)
"""Rows, columns, depth, warps and stages: 128x128x64 with 8 warps and 3 stages was the best of six in every product
that was measured on an H100 (issue 25). Two stages of 128x256x64 are what fits where four operands are loaded."""
FAST_PRECISIONS = ("tf32", "bf16x3", "tf32x3")
"""Input precisions of fp32 products, the likeliest to be fast first."""


def usual_configurations(
    parameters: Sequence[Parameter], precision: PrecisionClass
) -> list[dict[str, Setting]]:
    """Configurations of a group whose kernels multiply; none of another group."""
    tiles = [
        p
        for p in parameters
        if p.role is ParameterRole.TILE and min(map(int, p.values)) >= MIN_DOT_EXTENT
    ]
    placed = [p for p in tiles if p.places_programs]
    deep = [p for p in tiles if not p.places_programs]
    if not placed or len({k for p in placed for k in p.kernels}) > 1:
        return []
    by_role = {p.role: p for p in parameters}
    products = by_role.get(ParameterRole.PRECISION)
    tried = 2 if precision is PrecisionClass.ANY else 1  # tf32 alone may not be precise enough
    wanted = (
        [n for n in FAST_PRECISIONS if n in precision.allowed][:tried]
        if products is not None
        else []
    )
    found: list[dict[str, Setting]] = []
    for rows, columns, depth, warps, stages in PRODUCT_TILINGS:
        one: dict[str, Setting] = {}
        for parameter, value in zip(placed, (rows, columns), strict=False):
            one[parameter.name] = _nearest(parameter, value)
        for parameter in deep[:1]:
            one[parameter.name] = _nearest(parameter, depth if len(placed) > 1 else columns)
        for role, value in ((ParameterRole.WARPS, warps), (ParameterRole.STAGES, stages)):
            if role in by_role:
                one[by_role[role].name] = _nearest(by_role[role], value)
        found += (
            [one | {products.name: name} for name in wanted]
            if products is not None and wanted
            else [one]
        )
    return found


def _nearest(parameter: Parameter, value: int) -> int:
    return min(map(int, parameter.values), key=lambda legal: (abs(legal - value), legal))
