"""Options shared by `rl train --online` and `rl loop`: problems, sampling, and judging."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import typer

from kernelwright.rl.command_line.options.shared import Against


@dataclass(frozen=True)
class RolloutOptions:
    """Options for the problems, the number of trajectories and turns, and the database of the
    log.
    """

    PANEL: ClassVar[str] = "Rollouts"
    problems: Annotated[
        list[str] | None,
        typer.Option("--problems", help="synth, synth:SPLIT, catalogue, a folder, a file. May be repeated.",
        show_default=False),
    ] = None  # fmt: skip
    against: Against = None
    db: Annotated[
        str | None,
        typer.Option(
            "--db",
            help="The database that rollouts are logged to.",
            show_default=".kernelwright/runs.db",
        ),
    ] = None
    problems_per_step: Annotated[
        int,
        typer.Option(
            "--problems-per-step",
            min=1,
            help="Problems in each step; in a loop from its log, in each cycle.",
        ),
    ] = 32
    group: Annotated[
        int, typer.Option(min=2, help="Trajectories for each problem: a group of GRPO.")
    ] = 12
    turns: Annotated[int, typer.Option(min=1, help="Turns a trajectory; the first is a draft.")] = 2
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes that judge.", show_default="cores less two")
    ] = None
    judge: Annotated[
        str,
        typer.Option(
            help="What judges: interpreted, compiled (offline compile, then interpreted) or cuda:N[,cuda:N]."
        ),
    ] = "interpreted"
    own_work: Annotated[
        str,
        typer.Option("--own-work", help="strict: its own kernels must do the work; share:P: at least this part of the "
        "GPU time; report: only told."),
    ] = "strict"  # fmt: skip
    contiguous_inputs: Annotated[
        bool,
        typer.Option("--contiguous-inputs/--other-layouts", help="Reward kernels that are right on contiguous inputs "
        "alone, or only those that are right on transposed, sliced and expanded inputs, too."),
    ] = True  # fmt: skip
    lag: Annotated[
        int,
        typer.Option(min=0, max=4, help="Rounds that are sampled and judged while one is trained on; 0: one after the "
        "other."),
    ] = 1  # fmt: skip
    reply_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens of one reply at most.", show_default="the agent's own"),
    ] = None
    thinking: Annotated[
        bool | None,
        typer.Option("--thinking/--no-thinking", help="Let the policy think, by its chat template (enable_thinking).",
        show_default="as the template is"),
    ] = None  # fmt: skip
    thinking_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens of a thought at most; its forced end is left out of the loss."),
    ] = None  # fmt: skip

    def fields(self) -> dict[str, Any]:
        """Returns fields of OnlineOptions. Raises InputError for an invalid value."""
        from kernelwright.agent.runtime.arguments import own_work_mode

        return {
            "problems": tuple(self.problems or ["synth"]), "against": tuple(self.against or ()), "db": self.db,
            "prompts": self.problems_per_step, "group": self.group, "turns": self.turns, "workers": self.workers,
            "judge": self.judge, "own_work": own_work_mode(self.own_work),
            "contiguous_inputs": self.contiguous_inputs, "lag": self.lag,
            "reply_tokens": self.reply_tokens, "thinking": self.thinking,
            "thinking_tokens": self.thinking_tokens,
        }  # fmt: skip


@dataclass(frozen=True)
class EngineOptions:
    """Options for the sampling engine, and for groups with equal rewards."""

    PANEL: ClassVar[str] = "Rollouts"
    engine: Annotated[
        str,
        typer.Option(
            help="What samples: transformers, process, vllm, openai:MODEL@URL (a vLLM server), or auto."
        ),
    ] = "auto"
    sampling_device: Annotated[
        str | None,
        typer.Option("--sampling-device", help="cuda:N: where rollouts are sampled.",
        show_default="where the policy is trained"),
    ] = None  # fmt: skip
    ray: Annotated[
        str | None,
        typer.Option(
            "--ray",
            metavar="ADDRESS",
            help="Sample and judge on this Ray cluster: HOST:PORT, auto, local.",
        ),
    ] = None
    rollout_actors: Annotated[
        int, typer.Option("--rollout-actors", min=1, help="With --ray: actors that sample one round, each on a GPU of "
        "its own where the training is on one.")
    ] = 1  # fmt: skip
    places: Annotated[
        int | None,
        typer.Option(min=1, help="Rows of the running batch.", show_default="512 on a GPU"),
    ] = None
    zero_variance: Annotated[
        str,
        typer.Option(
            "--zero-variance", help="Drop groups that all earned the same, or resample for others."
        ),
    ] = "drop"

    def fields(self) -> dict[str, Any]:
        """Returns fields of OnlineOptions. Raises InputError for an invalid value."""
        from kernelwright.errors import InputError

        if self.zero_variance not in ("drop", "resample"):
            raise InputError(f"--zero-variance {self.zero_variance!r}: choose drop or resample")
        return {
            "engine": self.engine, "sampling_device": self._sampling_device(), "ray": self.ray,
            "rollout_actors": self.rollout_actors,
            "key": os.environ.get("OPENAI_API_KEY"), "places": self.places,
            "resample": self.zero_variance == "resample",
        }  # fmt: skip

    def _sampling_device(self) -> str | None:
        """Returns the sampling GPU. Raises InputError for an absent GPU, and for an engine whose
        GPU is chosen in another way.
        """
        from kernelwright.agent.runtime.arguments import choose_device
        from kernelwright.errors import InputError

        if self.sampling_device is None:
            return None
        if self.engine not in ("auto", "process") or not self.sampling_device.startswith("cuda"):
            raise InputError(
                "--sampling-device takes cuda:N with --engine process or auto: leave it out with another engine"
            )
        return choose_device(self.sampling_device)


@dataclass(frozen=True)
class HeldOutOptions:
    """Options for the held-out problems of an evaluation."""

    PANEL: ClassVar[str] = "Held-out problems"
    held_out: Annotated[
        list[str] | None,
        typer.Option(
            "--held-out",
            help="What the policy is measured on.",
            show_default="synth's three held-out splits",
        ),
    ] = None
    held_out_count: Annotated[
        int, typer.Option("--held-out-count", min=1, help="Problems of each held-out split.")
    ] = 64
    held_out_samples: Annotated[
        int, typer.Option("--held-out-samples", min=1, help="Drafts of each held-out problem.")
    ] = 4

    def fields(self) -> dict[str, Any]:
        """Returns fields of OnlineOptions."""
        return {
            "held_out": tuple(self.held_out or ()), "held_out_count": self.held_out_count,
            "samples": self.held_out_samples,
        }  # fmt: skip


@dataclass(frozen=True)
class HeldOutEvaluationOptions(HeldOutOptions):
    """Options for the evaluation during an online training."""

    evaluate_every: Annotated[
        int | None,
        typer.Option(
            "--evaluate-every",
            min=1,
            help="Optimizer steps from one measurement on held-out problems to the next; the best measured weights "
            "become the policy.",
            show_default="never",
        ),
    ] = None

    def fields(self) -> dict[str, Any]:
        """Returns fields of OnlineOptions. Raises InputError for held-out problems without an
        evaluation.
        """
        from kernelwright.errors import InputError

        if self.evaluate_every is None and self.held_out:
            raise InputError("--held-out goes with --evaluate-every N: say how often to measure")
        return {**super().fields(), "evaluate_every": self.evaluate_every}
