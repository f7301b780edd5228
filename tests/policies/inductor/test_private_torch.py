"""The private functions of torch and Triton that drafting depends on."""

import functools
import importlib

import pytest

from kernelwright.policies.inductor.private_torch import PRIVATE_NAMES


@pytest.mark.parametrize("name", PRIVATE_NAMES)
def test_this_torch_has_every_private_function_that_drafting_uses(name):
    module, _, path = name.partition(":")
    functools.reduce(getattr, path.split("."), importlib.import_module(module))
