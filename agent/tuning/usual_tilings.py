"""Starting points of the search: tilings of products that are good on most GPUs, as
configurations of a group of parameters.

The compiler's figures, and on a GPU the clock, decide which configuration is best.
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
"""Rows, columns, depth, warps and stages. 128x128x64 with 8 warps and 3 stages was the best of
six in every product measured on an H100 (issue 25). 128x256x64 fits with two stages when four
operands are loaded.
"""
FAST_PRECISIONS = ("tf32", "bf16x3", "tf32x3")
"""Input precisions of fp32 products, the likeliest to be fast first."""


def usual_configurations(
    parameters: Sequence[Parameter], precision: PrecisionClass
) -> list[dict[str, Setting]]:
    """Returns starting configurations for a group whose kernels multiply; none for any other
    group.
    """
    # Tiles of tl.dot: rows and columns place programs on the grid, the depth does not.
    placed: list[Parameter] = []
    deep: list[Parameter] = []
    kernels: set[str] = set()
    for parameter in parameters:
        if parameter.role is not ParameterRole.TILE:
            continue
        if min(map(int, parameter.values)) < MIN_DOT_EXTENT:
            continue
        if parameter.places_programs:
            placed.append(parameter)
            kernels.update(parameter.kernels)
        else:
            deep.append(parameter)
    if not placed or len(kernels) > 1:
        return []
    by_role = {p.role: p for p in parameters}
    products = by_role.get(ParameterRole.PRECISION)
    # tf32 alone may not be precise enough.
    precision_count = 2 if precision is PrecisionClass.ANY else 1
    precisions: list[str] = []
    if products is not None:
        fast = [name for name in FAST_PRECISIONS if name in precision.allowed]
        precisions = fast[:precision_count]
    configurations: list[dict[str, Setting]] = []
    for rows, columns, depth, warps, stages in PRODUCT_TILINGS:
        configuration: dict[str, Setting] = {}
        for parameter, value in zip(placed, (rows, columns), strict=False):
            configuration[parameter.name] = _nearest(parameter, value)
        for parameter in deep[:1]:
            configuration[parameter.name] = _nearest(
                parameter, depth if len(placed) > 1 else columns
            )
        for role, value in ((ParameterRole.WARPS, warps), (ParameterRole.STAGES, stages)):
            if role in by_role:
                configuration[by_role[role].name] = _nearest(by_role[role], value)
        if products is not None and precisions:
            configurations += [configuration | {products.name: name} for name in precisions]
        else:
            configurations.append(configuration)
    return configurations


def _nearest(parameter: Parameter, value: int) -> int:
    return min(map(int, parameter.values), key=lambda legal: (abs(legal - value), legal))
