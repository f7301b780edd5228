"""References made in several threads at once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from kernelwright.tools.problem import Problem
from kernelwright.tools.references.models.module_loading import MAX_REMEMBERED_MODULES
from kernelwright.tools.references.reference import Reference

SOURCE = """import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x
def get_inputs():
    return [torch.rand(4)]
def get_init_inputs():
    return []
"""


@pytest.fixture
def switching() -> Iterator[None]:
    """Threads take turns after every few instructions."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_threads_that_make_many_references_do_not_disturb_each_other(switching: None) -> None:
    """The list of modules to be forgotten was read by one thread while another wrote to it, and the reference was
    said to fail.
    """

    def make(thread: int) -> None:
        for i in range(MAX_REMEMBERED_MODULES):
            Reference(Problem(name=f"p{thread}_{i}", source=SOURCE + f"# {thread} {i}\n"), "meta")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(make, range(4)))
