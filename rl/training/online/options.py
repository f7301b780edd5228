"""The options of `rl train --online` and `rl loop`, as values."""

from __future__ import annotations

import os

from pydantic import Field

from kernelwright.rl.training.options import TrainOptions


class OnlineOptions(TrainOptions):
    """Training on rollouts that are made for it."""

    problems: tuple[str, ...] = ("synth",)
    against: tuple[str, ...] = ()
    """Suites that no generated problem may be of, besides the benchmarks that are known."""
    db: str | None = None
    """The database of the rollouts; None takes the agent's default one."""
    prompts: int = Field(default=32, ge=1)
    """Number of problems of a step."""
    group: int = Field(default=12, ge=2)
    """Number of trajectories of a problem."""
    turns: int = Field(default=2, ge=1)
    reply_tokens: int | None = None
    temperature: float = Field(default=1.0, gt=0.0)
    workers: int | None = Field(default=None, ge=1)
    judge: str = "interpreted"
    """interpreted, compiled or cuda:N."""
    own_work: str = "strict"
    """strict, share:P or report: whether a candidate whose kernels do not do the work counts as right
    (docs/explanation/trust.md, check 7).
    """
    contiguous_inputs: bool = True
    """Whether a candidate that answers wrongly on transposed, sliced or expanded inputs counts as right, as it did
    before the judge looked at other layouts.
    """
    lag: int = Field(default=1, ge=0, le=4)
    """Rounds that are sampled and judged while one is trained on; each is as many steps old when its turn comes."""
    resample: bool = False
    sampling_gpu: str | None = None
    """The one GPU that the sampling process is shown, as CUDA_VISIBLE_DEVICES names it; None: what this one sees."""
    judge_gpus: tuple[str, ...] = ()
    """Likewise those of the judging processes, each of which is shown one; none: what this process sees."""
    ray: str | None = None
    """The address of the cluster that rollouts are sampled and judged on; None: this machine."""
    rollout_actors: int = Field(default=1, ge=1)
    """Actors on the cluster that sample one round."""
    places: int | None = None
    """Rows of the running batch."""
    engine: str = "auto"
    """transformers (in this process), process (transformers in a process of its own), vllm, openai:MODEL@URL (a
    vLLM server), or auto.
    """
    key: str | None = Field(default=None, exclude=True, repr=False)
    """The key of the server; it is never written to a file."""
    held_out: tuple[str, ...] = ()
    held_out_count: int = 64

    @property
    def judges(self) -> int:
        """Judge processes: the number asked for, else the cores but two, at least one."""
        return self.workers or max(1, (os.cpu_count() or 2) - 2)


class LoopOptions(OnlineOptions):
    """Cycles of it, each measured before it is promoted."""

    cycles: int = Field(default=3, ge=1)
    steps: int = Field(default=20, ge=1)
    """Optimizer steps a cycle."""
    how: str = "online"
    """online: sampled anew each step; log: collected once a cycle, then trained from what was logged."""
    samples: int = Field(default=4, ge=1)
    """Drafts of each held-out problem."""

    @property
    def loop_identity(self) -> str:
        """More cycles are more of the same loop."""
        return self.model_copy(update={"cycles": 1}).identity_of({})
