"""The taskset: a task for each problem of the judge, scored by the judge."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import verifiers.v1 as vf

from kernelwright_client import JudgeClient, Task, code_of


class Unscored(RuntimeError):
    """The judge could not look at a candidate. verifiers keeps it on the trace, which then trains nothing."""


class KernelData(vf.TaskData):
    problem: str
    """The judge's name of the problem."""
    reference: str


class KernelTaskConfig(vf.TaskConfig):
    judge_url: str | None = None
    """The judge service; without one KERNELWRIGHT_JUDGE_URL names it."""
    patience: float = 900.0
    """Seconds that trouble of the judge is waited out."""
    weights: dict[str, float | str | bool | None] | str = "default"
    """A preset's name, or a table of weights."""
    group: str = "verifiers"
    """What the groups of rollouts are named by, before the problem: a step of the training, say."""


class KernelTask(vf.Task[KernelData, vf.State, KernelTaskConfig]):
    """One problem. The policy's last reply is the candidate."""

    @property
    def key(self) -> str:
        """The judge's name of the problem, which outlives the taskset's order."""
        return self.data.problem

    @vf.reward
    async def kernel(self, trace: vf.Trace) -> dict[str, float]:
        """The parts of the reward, each recorded by its name. Raises Unscored where there is no verdict."""
        judge = _judge(self.config.judge_url, self.config.patience)
        group = f"{self.config.group}/{self.data.problem}"
        score = await judge.score_async(self.data.problem, code_of(trace.last_reply), group=group)
        reward = score.reward(self.config.weights)
        trace.record_metrics({"gate": score.gate, "speedup": score.speedup or 0.0})
        trace.info["kernel"] = score.without_answer()
        if reward.masked:
            raise Unscored(f"{reward.failure_kind}: {reward.explanation}")
        return dict(reward.parts)

    async def validate(self, runtime: Any) -> bool:
        """Whether the judge knows the problem, judges a candidate, and does not take torch's own work for one."""
        judge = _judge(self.config.judge_url, self.config.patience)
        found = await asyncio.to_thread(judge.task, self.data.problem)
        copied = f"{self.data.reference}\n\nclass ModelNew(Model):\n    pass\n"
        score = await judge.score_async(self.data.problem, copied)
        return found.reference == self.data.reference and not score.trouble and not score.correct


class KernelTasksetConfig(vf.TasksetConfig):
    problems: list[str] | None = None
    """Names of the judge's problems; without them all that it has."""
    task: KernelTaskConfig = KernelTaskConfig()


class KernelTaskset(vf.Taskset[KernelTask, KernelTasksetConfig]):
    """The problems of a judge service."""

    def load(self) -> Iterator[KernelTask]:
        settings = self.config.task
        for task in _judge(settings.judge_url, settings.patience).tasks(self.config.problems):
            yield KernelTask(_data(task), settings)


def _data(task: Task) -> KernelData:
    return KernelData(
        id=task.id, name=task.id, description=task.title, problem=task.id, reference=task.reference,
        prompt=task.prompt[0]["content"],
    )  # fmt: skip


@lru_cache(maxsize=16)
def _judge(url: str | None, patience: float) -> JudgeClient:
    return JudgeClient(url, patience=patience)
