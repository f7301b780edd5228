"""What goes over the wire between a policy and the environment."""

from __future__ import annotations

from openenv.core.env_server.types import Action, Observation
from pydantic import Field


class KernelAction(Action):
    """A candidate."""

    code: str = Field(
        description="The whole Python file with `class ModelNew`, or a reply that holds it in a fence."
    )


class KernelObservation(Observation):
    """The problem at first, then the verdict on each candidate.

    `reward` is None where the candidate could not be judged: it must not train. After a cheat every candidate of the
    episode is worth what the cheat is. `done` is set where no attempts are left and, unless the environment goes on for
    a faster kernel, for a correct one.
    """

    problem: str = Field(default="", description="The judge's name of the problem.")
    text: str = Field(
        default="", description="The prompt after a reset, the verdict in words after a step."
    )
    ended_at: str = Field(
        default="", description="source, compile, interpreted, correctness, profile or unscored."
    )
    correct: bool = False
    failure_kind: str = Field(default="", description="The fault, or why it could not be judged.")
    parts: dict[str, float] = Field(
        default_factory=dict,
        description="form, compile, checks, correct, speed, share, length, cheat.",
    )
    attempts_left: int = 0
