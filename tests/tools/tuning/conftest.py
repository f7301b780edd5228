"""A front that traces and compiles, for tests of the tuner's lower floor."""

import pytest

from kernelwright.tools.evaluation.pipeline import Options


@pytest.fixture(scope="session")
def front(evaluator):
    return evaluator.front()


@pytest.fixture(scope="session")
def tracing(front):
    """Gives a function that traces a text at a problem's own size for sm_90."""

    def of(problem):
        return lambda text: front.traced_at_own_size(problem, text, "sm_90", Options())

    return of
