"""Zygotes that the tests of this room share."""

import pytest

from kernelwright.tools.sandbox import Limits, ProcessKind, Zygote

SMALL = Limits(memory=1 << 30, disk=64 << 20, files=2_000, processes=64)


@pytest.fixture(scope="session")
def strict():
    """As the judge uses it: a bounded folder in memory."""
    with Zygote(ProcessKind.COMPILE, spare=False, private_scratch=True, limits=SMALL) as zygote:
        yield zygote


@pytest.fixture(scope="session")
def bare():
    """As on a host that allows neither a pid namespace nor a file system of a candidate's own."""
    with Zygote(ProcessKind.INTERPRET, spare=False, pid_namespace=False, limits=SMALL) as zygote:
        yield zygote
