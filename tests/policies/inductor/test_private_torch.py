"""The private functions of torch and Triton that drafting depends on."""

from kernelwright.policies.inductor.private_torch import PRIVATE_NAMES, missing_private_names


def test_this_torch_has_every_private_function_that_drafting_uses():
    assert PRIVATE_NAMES
    assert missing_private_names() == []
