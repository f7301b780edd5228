"""What the tests of all plugs have: a running judge, kernels of this repository, and an address where no judge is.

bench/plugs.py starts the judge; `agent serve --device cpu` and KERNELWRIGHT_JUDGE_URL do as well.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

KERNELS = Path(__file__).parents[1] / "tests" / "kernels"
PROBLEM = "fused_silu"
NOBODY = "http://127.0.0.1:9"
"""Port 9 (discard): nobody listens there."""


@pytest.fixture(scope="session")
def judge_url() -> str:
    url = os.environ.get("KERNELWRIGHT_JUDGE_URL", "")
    if not url:
        pytest.skip(
            "start agent serve --no-token --device cpu and set KERNELWRIGHT_JUDGE_URL, or run bench/plugs.py"
        )
    return url


@pytest.fixture(scope="session")
def nobody() -> str:
    return NOBODY


@pytest.fixture(scope="session")
def problem() -> str:
    return PROBLEM


@pytest.fixture(scope="session")
def right() -> str:
    """A correct kernel."""
    return (KERNELS / "good" / "fused_silu.py").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def wrong(right: str) -> str:
    """It compiles, and its numbers are wrong: the sigmoid is left out."""
    return right.replace("x * tl.sigmoid(x)", "x * 1.0")


@pytest.fixture(scope="session")
def uncompiled(right: str) -> str:
    """Triton has no such function."""
    return right.replace("tl.store(", "tl.no_such_store(")
