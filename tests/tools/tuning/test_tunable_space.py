"""The tracer says whether what is launched follows a number of the text."""

from pathlib import Path

import pytest

from kernelwright.agent.problems.finding import find_by_name
from kernelwright.tools.tuning.kernel_text.parameters import ParameterRole
from kernelwright.tools.tuning.kernel_text.reading import read_file
from kernelwright.tools.tuning.tunable_space import find_tunable_space

GOOD = Path(__file__).parents[2] / "kernels" / "good"


def followed(tracing, name, change=lambda text: text):
    text = change((GOOD / f"{name}.py").read_text(encoding="utf-8"))
    return find_tunable_space(read_file(text), tracing(find_by_name(name.replace("_", " "))))


def test_all_parameters_of_a_matmul_reach_the_launch_and_its_grid_follows(tracing):
    found = followed(tracing, "matmul")
    assert len(found.space.parameters) == 8
    assert found.launches[0].grid == (1024, 1, 1)


def test_a_tile_whose_grid_does_not_follow_is_left_alone(tracing):
    """The grid divides by a number that is computed, so that no rewriting of the text can change it."""
    found = followed(
        tracing,
        "vector_add",
        lambda text: text.replace("triton.cdiv(n, 1024)", "triton.cdiv(n, 2**10)"),
    )
    assert not [p for p in found.space.parameters if p.role is ParameterRole.TILE]
    [refused] = [r for r in found.space.refused if r.name.endswith("BLOCK")]
    assert "the grid stays" in refused.why


def test_kernels_that_this_size_does_not_launch_are_left_alone(tracing):
    found = followed(tracing, "fused_softmax")
    assert {p.kernels for p in found.space.parameters} == {("softmax_row_kernel",)}
    assert found.space.named("softmax_row_kernel.num_warps").start == 8


def test_half_precision_operands_have_no_input_precision(tracing):
    assert not [
        p
        for p in followed(tracing, "matmul_fp16").space.parameters
        if p.role is ParameterRole.PRECISION
    ]


def test_half_precision_operands_beside_a_bias_of_fp32_have_no_input_precision(tracing):
    def precisions(change):
        found = followed(tracing, "matmul_bias_relu", change)
        return [p.operands for p in found.space.parameters if p.role is ParameterRole.PRECISION]

    halved = "x.half(), self.linear.weight.half(), self.linear.bias"
    assert precisions(lambda text: text) == [("weight_ptr", "x_ptr")]
    assert (
        precisions(lambda text: text.replace("x, self.linear.weight, self.linear.bias", halved))
        == []
    )


@pytest.mark.parametrize("name", ["matvec", "mse_loss", "avg_pool2d"])
def test_a_changed_value_is_what_the_tracer_sees_launched(tracing, name):
    from kernelwright.tools.tuning.kernel_text.rewriting import rewrite
    from kernelwright.tools.tuning.launch_facts import launches_at

    text = (GOOD / f"{name}.py").read_text(encoding="utf-8")
    file, problem = read_file(text), find_by_name(name.replace("_", " "))
    found = find_tunable_space(file, tracing(problem))
    for parameter in (
        p for p in found.space.parameters if p.role is ParameterRole.TILE and not p.capped
    ):
        value = next(v for v in parameter.values if v != parameter.start)
        launches = launches_at(
            tracing(problem)(rewrite(file.source, found.space, {parameter.name: value})).traced
        )
        own = [launch for launch in launches if launch.function in parameter.kernels]
        assert any(
            launch.constants[name] == value for launch in own for name in parameter.constexprs
        )
