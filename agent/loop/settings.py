"""The settings of a run: frozen values. Two commands with equal settings are the same command."""

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
"""The most a reply may take unless it is said."""


class Settings(Value):
    """Everything that a run is asked for beside its problem; the same settings go on with the same run."""

    policy: str
    """The policy's name, as the user gave it."""
    targets: tuple[str, ...] = ("sm_90",)
    device: str = "cpu"
    own_work: str = "strict"
    train_mode: bool = False
    """Whether a module that draws random numbers in training mode is refused, and not judged in eval mode."""
    draft: str = "policy"
    """The author of the first candidate: policy, compiler, auto (agent/solve/drafting.py), or a file with a kernel."""
    partial: bool = False
    """Whether the compiler's draft may leave operators without a kernel of its own to torch."""
    tune: bool = False
    """Whether the numbers of every new best kernel are tuned (on a GPU)."""
    precision: str = ""
    """The precision of fp32 products: ieee, split or any (agent/tuning/settings.py). Empty: as eager's, or in parts of
    about the same precision.
    """
    search: SearchKind = SearchKind.SERIAL
    samples: int = 4
    goal: Goal = Goal()
    budgets: Budgets = Budgets()
    temperature: float | None = None
    """The sampling temperature. None: 1 for a policy with chat prompts; a small policy first decodes greedily, then
    samples at 0.8.
    """
    repeated: bool = False
    """Not the first trajectory of its problem: what is likeliest has been said, so it draws its first answer too.

    Follows from the trajectory, so it makes no other command.
    """
    reply_tokens: int | None = None
    seed: int | None = None
    prompts: Path | None = None
    """A folder of the user's own."""
    reasoning_effort: str | None = None
    extra_body: dict[str, JsonValue] = {}
    """Fields of the user's own that every request to a server has."""
    prompt_version: str = ""
    """The version of the prompts' texts. Whoever opens the run sets it: other texts make another command."""

    @property
    def tunes_from(self) -> int | None:
        """The number of turns after which the best kernel is tuned; None where it never is.

        Where policy and compiler both draft, the better of the two is.
        """
        return None if not self.tune else 2 if self.draft == "auto" else 1

    def aimed_search(self) -> CandidateSearch:
        """The search that these settings name, with their goal and their tuning."""
        return GoalSearch(self.goal, make_search(self.search, self.samples), self.tunes_from)

    @classmethod
    def of(cls, trajectory: Trajectory) -> Self:
        """Returns the settings of a stored trajectory. A folder of prompts is not stored, only the version of its
        texts.
        """
        told = trajectory.options
        return cls(
            policy=trajectory.policy,
            targets=tuple(told.get("targets", ("sm_90",))),
            device=told.get("device", "cpu"),
            own_work=told.get("own_work", "strict"),
            train_mode=bool(told.get("train_mode", False)),
            draft=told.get("draft", "policy"),
            partial=told.get("partial", False),
            tune=bool(told.get("tune", False)),
            precision=told.get("precision", ""),
            search=told.get("search", SearchKind.SERIAL),
            samples=told.get("samples", 4),
            goal=Goal.parse(trajectory.goal or "correct"),
            budgets=Budgets.model_validate(trajectory.budgets),
            temperature=told.get("temperature"),
            reply_tokens=told.get("reply_tokens"),
            reasoning_effort=told.get("reasoning_effort"),
            extra_body=told.get("extra_body", {}),
            seed=trajectory.seed,
            repeated=trajectory.sample > 0,
        )

    def start(self, problem: Problem, program: str = "") -> TrajectoryStart:
        """The row that a trajectory begins with; equal starts go on with one trajectory."""
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
        if self.draft != "policy":  # so that commands of earlier versions stay the same commands
            options["draft"] = self.draft
        if self.train_mode:
            options["train_mode"] = True
        if self.partial:
            options["partial"] = True
        if self.tune:
            options["tune"] = True
        if self.precision:
            options["precision"] = self.precision
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
        """Returns the sampling of one turn. The seed changes with the turn, so that no two turns draw the same."""
        limit = self.reply_tokens or REPLY_TOKENS[form]
        if tokens_left is not None:
            limit = max(1, min(limit, tokens_left))
        base = self.seed if self.seed is not None else trajectory_id * 7919
        return Sampling(
            temperature=self._temperature(form, turn), max_tokens=limit, seed=(base + turn) % 2**31
        )

    def _temperature(self, form: PromptForm, turn: int) -> float:
        if self.temperature is not None:
            return self.temperature
        if form is PromptForm.CHAT:
            return 1.0
        greedy = turn == 0 and self.search is SearchKind.SERIAL and not self.repeated
        return 0.0 if greedy else EXPLORING_TEMPERATURE
