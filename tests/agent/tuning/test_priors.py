"""What won before is tried first, for kernels of the same kind."""

from pathlib import Path

from kernelwright.agent.tuning.priors import priors_from
from kernelwright.agent.tuning.proposals import Proposals, groups_of
from kernelwright.agent.tuning.settings import PrecisionClass
from kernelwright.tools.tuning.kernel_text.parameters import ParameterRole
from kernelwright.tools.tuning.kernel_text.reading import read_file
from kernelwright.tools.tuning.kernel_text.rewriting import rewrite

GOOD = Path(__file__).parents[2] / "kernels" / "good"


def file_of(name):
    return read_file((GOOD / f"{name}.py").read_text(encoding="utf-8"))


def test_the_tiles_of_one_product_are_carried_over_to_another_by_their_place():
    linear, matmul = file_of("linear_gelu"), file_of("matmul_bias_relu")
    [kernel] = {p.kernels for p in linear.space.parameters}
    name = kernel[0]
    won = rewrite(
        linear.source,
        linear.space,
        {f"{name}.BLOCK_M": 128, f"{name}.BLOCK_K": 64, f"{name}.num_warps": 8},
    )
    [prior] = priors_from([won, won], matmul.space)
    values = {key.partition(".")[2]: value for key, value in prior.items()}
    assert (values["BLOCK_M"], values["BLOCK_N"], values["BLOCK_K"], values["num_warps"]) == (
        128,
        64,
        64,
        8,
    )


def test_a_kernel_of_another_kind_says_nothing():
    assert priors_from([file_of("vector_add").source], file_of("matmul").space) == []


def test_priors_are_proposed_before_any_draw_and_within_the_precision():
    file = file_of("matmul")
    space, start = file.space, file.space.start()
    prior = start | {"matmul_kernel.BLOCK_M": 256}
    proposals = Proposals(space, groups_of(space)[0], start, PrecisionClass.IEEE, [prior])
    first = proposals.next({}, 8)
    assert first[:2] == [start, prior]
    [precision] = [p.name for p in space.parameters if p.role is ParameterRole.PRECISION]
    assert {one[precision] for one in first} == {"ieee"}


def test_the_same_tuning_proposes_the_same():
    space = file_of("matmul").space

    def proposed():
        proposals = Proposals(space, groups_of(space)[0], space.start(), PrecisionClass.SPLIT)
        return [proposals.next({}, 8) for _ in range(3)]

    assert proposed() == proposed()
