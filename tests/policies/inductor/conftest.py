"""The compiler's warm process, once for all tests here."""

from collections.abc import Iterator

import pytest

from kernelwright.agent.solve.drafting import Drafter


@pytest.fixture(scope="session")
def drafter() -> Iterator[Drafter]:
    with Drafter() as one:
        yield one
