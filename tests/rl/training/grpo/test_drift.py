"""How far a policy has moved from a log is measured over all of the log."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from kernelwright.rl.training.grpo.drift import measure_drift  # noqa: E402
from tests.rl.tiny_rows import loaded, on_policy, random_rows  # noqa: E402
from tests.tiny_model import save_tiny_model  # noqa: E402


@pytest.mark.parametrize("count", [20, 31, 39, 47])
def test_the_end_of_a_log_counts_as_much_as_its_beginning(tmp_path, count):
    """Of 1,360 rows the last quarter, the newest, was never looked at."""
    model, tokenizer = loaded(save_tiny_model(tmp_path))
    own, others = on_policy(model, random_rows(count)), random_rows(count, seed=1)
    quarter = count // 4
    moved = measure_drift(
        model, own[:-quarter] + others[-quarter:], tokenizer.pad_token_id, 1.0, at_most=20
    )
    assert moved.rows == 20
    assert moved.largest > 0.1
    assert measure_drift(model, own, tokenizer.pad_token_id, 1.0, at_most=20).largest < 1e-4
