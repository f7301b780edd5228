"""The options of `rl train --online` and `rl loop`."""

from __future__ import annotations

import os

from pydantic import Field

from kernelwright.rl.training.options import TrainOptions

HELD_OUT_SPLITS = ("synth:composition", "synth:depth", "synth:family")
"""What is measured unless --held-out names something else."""
DEFAULT_STEPS = 100
"""Number of optimizer steps unless --max-steps is set."""


class OnlineOptions(TrainOptions):
    """Options of a training on rollouts sampled for it."""

    problems: tuple[str, ...] = ("synth",)
    against: tuple[str, ...] = ()
    """Suites whose problems must not be generated, in addition to the known benchmarks."""
    db: str | None = None
    """Database of the rollouts; None selects the agent's default database."""
    prompts: int = Field(default=32, ge=1)
    """Number of problems of a step."""
    group: int = Field(default=12, ge=2)
    """Number of trajectories of a problem."""
    turns: int = Field(default=2, ge=1)
    reply_tokens: int | None = None
    thinking: bool | None = None
    """Whether the chat template lets the policy think; None: the template's own default."""
    thinking_tokens: int | None = Field(default=None, ge=1)
    """Maximum number of tokens of a thought; its forced end is left out of GRPO's loss."""
    temperature: float = Field(default=1.0, gt=0.0)
    workers: int | None = Field(default=None, ge=1)
    judge: str = "interpreted"
    """`interpreted`, `compiled` or `cuda:N`."""
    own_work: str = "strict"
    """strict, share:P or report: whether a candidate counts as correct if its kernels do not do
    the work (docs/explanation/trust.md, check 7).
    """
    contiguous_inputs: bool = True
    """Whether a candidate may be wrong on transposed, sliced or expanded inputs and still count
    as correct, as before the judge checked other layouts.
    """
    lag: int = Field(default=1, ge=0, le=4)
    """Number of rounds sampled and judged during the training on another; each is as many steps
    old when its turn comes.
    """
    resample: bool = False
    sampling_gpu: str | None = None
    """The GPU visible to the sampling process, as named by CUDA_VISIBLE_DEVICES; None: the GPUs
    of this process.
    """
    judge_gpus: tuple[str, ...] = ()
    """The GPUs of the judging processes, one visible to each, as named by CUDA_VISIBLE_DEVICES;
    empty: the GPUs of this process.
    """
    ray: str | None = None
    """Address of the Ray cluster for sampling and judging; None: this machine."""
    rollout_actors: int = Field(default=1, ge=1)
    """Number of sampling actors on the cluster for a round."""
    places: int | None = None
    """Number of rows of the running batch."""
    engine: str = "auto"
    """transformers (in this process), process (transformers in a separate process), vllm,
    openai:MODEL@URL (a vLLM server), or auto.
    """
    key: str | None = Field(default=None, exclude=True, repr=False)
    """API key of the server; never written to a file."""
    held_out: tuple[str, ...] = ()
    held_out_count: int = 64
    samples: int = Field(default=4, ge=1)
    """Number of drafts of each held-out problem."""
    evaluate_every: int | None = Field(default=None, ge=1)
    """Number of optimizer steps from one evaluation on held-out problems to the next; None: no
    evaluation.
    """

    @property
    def judges(self) -> int:
        """Number of judging processes: as requested, else the number of cores minus two, at least
        one.
        """
        return self.workers or max(1, (os.cpu_count() or 2) - 2)


class LoopOptions(OnlineOptions):
    """Options of a loop: cycles of training, each measured before promotion."""

    cycles: int = Field(default=3, ge=1)
    steps: int = Field(default=20, ge=1)
    """Number of optimizer steps of a cycle."""
    how: str = "online"
    """online: sampled anew for each step; log: collected once a cycle, then trained from the log.
    """

    @property
    def loop_identity(self) -> str:
        """Hash of the options without the number of cycles: more cycles continue the same loop."""
        return self.model_copy(update={"cycles": 1}).identity_of({})
