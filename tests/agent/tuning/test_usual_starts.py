"""Where a tuning begins: tilings of products, in the precisions that a problem may be made in."""

from pathlib import Path

import pytest

from kernelwright.agent.tuning.proposals import PROPOSALS_AT_ONCE, Proposals, groups_of
from kernelwright.agent.tuning.settings import PrecisionClass
from kernelwright.agent.tuning.turn import precision_for
from kernelwright.agent.tuning.usual_tilings import PRODUCT_TILINGS, usual_configurations
from kernelwright.tools.problem import Problem
from kernelwright.tools.tuning.kernel_text.parameters import ParameterRole, key_of
from kernelwright.tools.tuning.kernel_text.reading import read_file

MATMUL = (Path(__file__).parents[2] / "kernels" / "good" / "matmul.py").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("layer", "allowed"),
    [
        ("nn.Conv2d(3, 8, 3)", PrecisionClass.ANY),
        ("nn.ConvTranspose3d(3, 8, 3)", PrecisionClass.ANY),
        ("F.conv1d(x, w)", PrecisionClass.ANY),
        ("nn.Linear(3, 8)", PrecisionClass.SPLIT),
        ("self.converted(x)", PrecisionClass.SPLIT),
    ],
)
def test_tf32_is_tried_where_torch_convolves_in_it(layer, allowed):
    assert precision_for(Problem(name="p", source=f"x = {layer}\n")) is allowed


def test_every_usual_tiling_is_proposed_although_they_are_more_than_a_batch():
    space = read_file(MATMUL).space
    (names,) = [group for group in groups_of(space) if any("BLOCK" in name for name in group)][:1]
    parameters = [p for p in space.parameters if p.name in names]
    starts = usual_configurations(parameters, PrecisionClass.SPLIT)
    assert len(starts) == len(PRODUCT_TILINGS) > PROPOSALS_AT_ONCE
    proposals, proposed = Proposals(space, names, space.start(), PrecisionClass.SPLIT), set()
    for _ in range(4):
        proposed |= {key_of(one) for one in proposals.next({}, PROPOSALS_AT_ONCE)}
    assert {key_of({**space.start(), **one}) for one in starts} <= proposed


def test_the_class_of_any_precision_begins_with_both_kinds():
    space = read_file(MATMUL).space
    precision = next(p.name for p in space.parameters if p.role is ParameterRole.PRECISION)
    starts = usual_configurations(
        [p for p in space.parameters if p.role is not ParameterRole.CTAS], PrecisionClass.ANY
    )
    assert {one[precision] for one in starts} == {"tf32", "bf16x3"}
