"""The settings of a run, as frozen values. Two commands with equal settings continue the same
run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import JsonValue

from kernelwright.agent.loop.search import CandidateSearch, GoalSearch, SearchKind, make_search
from kernelwright.agent.loop.stopping import Budgets, Goal
from kernelwright.policies.base import PromptForm, Sampling, Value
from kernelwright.store.models import Trajectory
from kernelwright.store.records import TrajectoryStart
from kernelwright.tools.problem import Problem

EXPLORING_TEMPERATURE = 0.8
"""Temperature of a small policy after its first, greedy answer."""
REPLY_TOKENS = {PromptForm.CHAT: 8192, PromptForm.COMPACT: 1536}
"""Default limit of a reply's tokens, by the form of the prompts."""


class Settings(Value):
    """All options of a run beside its problem; equal settings continue the same run."""

    policy: str
    """Name of the policy, as the user typed it."""
    targets: tuple[str, ...] = ("sm_90",)
    device: str = "cpu"
    own_work: str = "strict"
    """Rule of own work: strict, share:P or report; `auto` until the run begins (agent/solve/own_work_choice.py)."""
    train_mode: bool = False
    """Whether a module with random numbers in training mode is refused, instead of judged in eval
    mode.
    """
    draft: str = "policy"
    """Author of the first candidate: policy, compiler, auto (agent/solve/drafting.py), or the
    path of a kernel file.
    """
    partial: bool = False
    """Whether the compiler's draft may leave operators without a kernel of their own to torch."""
    variants: int = 0
    """Plans of the compiler's decisions that are drafted beside the default (agent/solve/variants.py)."""
    tune: bool = False
    """Whether the numbers of every new best kernel are tuned (on a GPU)."""
    precision: str = ""
    """Precision of fp32 products: ieee, split or any (agent/tuning/settings.py). Empty: eager's
    precision, or parts of about the same precision.
    """
    search: SearchKind = SearchKind.SERIAL
    samples: int = 4
    goal: Goal = Goal()
    budgets: Budgets = Budgets()
    temperature: float | None = None
    """Sampling temperature. None: 1 for a policy with chat prompts; a small policy first decodes
    greedily, then samples at 0.8.
    """
    repeated: bool = False
    """Whether the problem has earlier trajectories. If so, the first answer is sampled too: the
    greedy answer is known already.

    Follows from the trajectory, so a command's identity does not depend on it.
    """
    reply_tokens: int | None = None
    thinking: bool | None = None
    """Whether the chat template lets the model think; None: the template's own default."""
    thinking_tokens: int | None = None
    """Maximum number of tokens of a thought."""
    seed: int | None = None
    prompts: Path | None = None
    """Folder with the user's prompt templates."""
    reasoning_effort: str | None = None
    extra_body: dict[str, JsonValue] = {}
    """The user's extra fields of every request to a server."""
    prompt_version: str = ""
    """Version of the prompt templates, set by the opener of the run: other templates make another
    command.
    """

    @property
    def tunes_from(self) -> int | None:
        """Number of turns after which the best kernel is tuned; None: never.

        If policy and compiler both draft, the better of the two drafts is tuned.
        """
        if not self.tune:
            return None
        return 2 if self.draft == "auto" else 1

    def aimed_search(self) -> CandidateSearch:
        """Returns the search of these settings, with their goal and their tuning."""
        return GoalSearch(self.goal, make_search(self.search, self.samples), self.tunes_from)

    @classmethod
    def of(cls, trajectory: Trajectory) -> Self:
        """Returns the settings of a stored trajectory. The store has no folder of prompts, only
        the version of the templates.
        """
        options = trajectory.options
        return cls(
            policy=trajectory.policy,
            targets=tuple(options.get("targets", ("sm_90",))),
            device=options.get("device", "cpu"),
            own_work=options.get("own_work", "strict"),
            train_mode=bool(options.get("train_mode", False)),
            draft=options.get("draft", "policy"),
            partial=options.get("partial", False),
            variants=int(options.get("variants", 0)),
            tune=bool(options.get("tune", False)),
            precision=options.get("precision", ""),
            search=options.get("search", SearchKind.SERIAL),
            samples=options.get("samples", 4),
            goal=Goal.parse(trajectory.goal or "correct"),
            budgets=Budgets.model_validate(trajectory.budgets),
            temperature=options.get("temperature"),
            reply_tokens=options.get("reply_tokens"),
            thinking=options.get("thinking"),
            thinking_tokens=options.get("thinking_tokens"),
            reasoning_effort=options.get("reasoning_effort"),
            extra_body=options.get("extra_body", {}),
            seed=trajectory.seed,
            repeated=trajectory.sample > 0,
        )

    def start(self, problem: Problem, program: str = "") -> TrajectoryStart:
        """Returns the first row of a trajectory; equal rows continue the same trajectory."""
        options: dict[str, JsonValue] = {
            "targets": list(self.targets),
            "device": self.device,
            "own_work": self.own_work,
            "search": self.search.value,
            "samples": 1 if self.search is SearchKind.SERIAL else self.samples,
            "goal": str(self.goal),
            "temperature": self.temperature,
            "reply_tokens": self.reply_tokens,
            "seed": self.seed,
            "prompts": self.prompt_version,
        }
        # Later options are stored only if set: commands of earlier versions continue their runs.
        if self.draft != "policy":
            options["draft"] = self.draft
        if self.train_mode:
            options["train_mode"] = True
        if self.partial:
            options["partial"] = True
        if self.variants:
            options["variants"] = self.variants
        if self.tune:
            options["tune"] = True
        if self.precision:
            options["precision"] = self.precision
        if self.thinking is not None:
            options["thinking"] = self.thinking
        if self.thinking_tokens is not None:
            options["thinking_tokens"] = self.thinking_tokens
        if self.reasoning_effort:
            options["reasoning_effort"] = self.reasoning_effort
        if self.extra_body:
            options["extra_body"] = self.extra_body
        return TrajectoryStart(
            problem=problem,
            policy=self.policy,
            options=options,
            goal=str(self.goal),
            budgets=self.budgets.model_dump(mode="json"),
            seed=self.seed,
            program=program,
        )

    def sampling(
        self, form: PromptForm, turn: int, trajectory_id: int, tokens_left: int | None
    ) -> Sampling:
        """Returns the sampling of one turn. The seed changes with the turn, so no two turns draw
        the same numbers.
        """
        limit = self.reply_tokens or REPLY_TOKENS[form]
        if tokens_left is not None:
            limit = max(1, min(limit, tokens_left))
        # Without a seed the trajectory's number is spread by a prime, so that the seeds of the
        # turns of neighbouring trajectories do not overlap.
        base = self.seed if self.seed is not None else trajectory_id * 7919
        return Sampling(
            temperature=self._temperature(form, turn),
            max_tokens=limit,
            thinking=self.thinking,
            thinking_tokens=self.thinking_tokens,
            seed=(base + turn) % 2**31,
        )

    def _temperature(self, form: PromptForm, turn: int) -> float:
        if self.temperature is not None:
            return self.temperature
        if form is PromptForm.CHAT:
            return 1.0
        greedy = turn == 0 and self.search is SearchKind.SERIAL and not self.repeated
        return 0.0 if greedy else EXPLORING_TEMPERATURE
