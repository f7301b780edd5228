"""What the tests of all plugs have: a running judge, kernels of this repository, and an address where no judge is.

bench/plugs.py starts the judge; `agent serve --device cpu` and KERNELWRIGHT_JUDGE_URL do as well.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
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


@pytest.fixture(scope="session")
def crashing(right: str) -> str:
    """Its process ends by itself, which a loaded machine may cause as well: the verdict masks it."""
    return f"{right}\n\nimport os\n\nos._exit(7)\n"


@pytest.fixture(scope="session")
def groups_of(judge_url: str) -> Callable[[str], list[dict[str, Any]]]:
    """`groups_of(prefix)`: the groups that the judge's reward health shows, the newest first."""

    def asked(prefix: str) -> list[dict[str, Any]]:
        health = httpx.get(f"{judge_url}/v1/rewards", timeout=60).raise_for_status().json()
        return [row for row in health["newest_groups"] if row["group"].startswith(prefix)]

    return asked


@pytest.fixture(scope="session")
def settled(
    groups_of: Callable[[str], list[dict[str, Any]]],
) -> Callable[..., list[dict[str, Any]]]:
    """`settled(prefix, groups, candidates)`: waits until so many groups of so many candidates are shown.

    The judge computes reward health every five seconds at most.
    """

    def waited(prefix: str, groups: int, candidates: int) -> list[dict[str, Any]]:
        deadline = time.monotonic() + 60.0
        while True:
            rows = groups_of(prefix)
            if [row["candidates"] for row in rows] == [candidates] * groups:
                return rows
            assert time.monotonic() < deadline, rows
            time.sleep(1.0)

    return waited
