"""The options of a small online training."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from kernelwright.rl.training.online.options import OnlineOptions  # noqa: E402


def options(novice: Path, problems: str, output: Path, **more) -> OnlineOptions:
    settings = {
        "learning_rate": 1e-3,
        "warmup_steps": 0,
        "gradient_accumulation_steps": 2,
        **more.pop("settings", {}),
    }
    known = {
        "prompts": 3,
        "group": 8,
        "turns": 2,
        "reply_tokens": 40,
        "workers": 1,
        "lag": 0,
        "db": str(output.parent / "runs.db"),
    }
    return OnlineOptions(
        policy=f"transformers:{novice}",
        output=output,
        problems=(problems,),
        settings=settings,
        **{**known, **more},
    )
