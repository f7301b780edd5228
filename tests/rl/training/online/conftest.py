"""A tiny policy, its problems and one judging process, made once for each module."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from kernelwright.rl.training.online.judges import TrainingJudges  # noqa: E402
from tests.rl.novice import save_novice, write_problems  # noqa: E402


@pytest.fixture(scope="module")
def novice(tmp_path_factory) -> Path:
    torch.set_num_threads(1)
    return save_novice(tmp_path_factory.mktemp("novice") / "model")


@pytest.fixture(scope="module")
def judges(tmp_path_factory):
    with TrainingJudges("cpu", 1, tmp_path_factory.mktemp("verdicts")) as found:
        yield found


@pytest.fixture(scope="module")
def problems(tmp_path_factory) -> str:
    return str(write_problems(tmp_path_factory.mktemp("problems") / "toys"))
