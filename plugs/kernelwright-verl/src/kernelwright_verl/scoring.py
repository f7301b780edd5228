"""What verl's reward manager calls for each sample, and the rows of its data sets."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from kernelwright_client import JudgeClient, code_of

DATA_SOURCE = "kernelwright"


class Unscored(RuntimeError):
    """The judge could not look at a candidate, and training on a guess would be wrong."""


async def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Mapping[str, Any] | None = None, *,
    judge_url: str | None = None, unscored: str = "raise", weights: Mapping[str, Any] | str | None = None,
    **_: Any,
) -> dict[str, Any]:  # fmt: skip
    """The reward of one reply, in parts.

    ground_truth: the judge's name of the problem. unscored: `raise` ends the step with Unscored; `nan` marks the sample
    for the advantage estimator `kernel_grpo`, which leaves it out (any other estimator would spoil its group). weights:
    a table of weights, or a preset's name. extra_info: `group`, or else `split` and `index`, name the prompt.

    Raises Unscored, and JudgeError for what the user must mend.
    """
    row = extra_info or {}
    group = str(
        row.get("group") or f"verl/{row.get('split', '')}-{row.get('index', '')}/{ground_truth}"
    )
    score = await _judge(judge_url).score_async(ground_truth, code_of(solution_str), group=group)
    reward = score.reward(weights)
    if reward.total is None and unscored != "nan":
        raise Unscored(f"{ground_truth}: {reward.failure_kind}: {reward.explanation}")
    return {
        "score": math.nan if reward.total is None else reward.total,
        "acc": float(score.correct),
        "masked": float(reward.masked),
        "ended_at": reward.ended_at,
        "failure_kind": reward.failure_kind,
        **reward.flat("part_"),
    }


def rows(
    judge: JudgeClient | None = None, names: Iterable[str] | None = None, split: str = "train"
) -> list[dict[str, Any]]:
    """Rows of a data set in verl's form: `pandas.DataFrame(rows()).to_parquet("train.parquet")`."""
    return [
        {
            "data_source": DATA_SOURCE,
            "prompt": task.prompt,
            "ability": "kernels",
            "reward_model": {"style": "rule", "ground_truth": task.id},
            "extra_info": {"split": split, "index": index, "family": task.family},
        }
        for index, task in enumerate((judge or JudgeClient()).tasks(names))
    ]


@lru_cache(maxsize=8)
def _judge(url: str | None) -> JudgeClient:
    return JudgeClient(url)
