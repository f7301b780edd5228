"""A live policy in actors on a Ray cluster: rollouts are sampled on other machines than the one that trains.

An actor that dies is begun again from the last weights, and what it was asked is asked again: nothing was answered, so
nothing is told twice. The model's folder has to lie at the same place on every node, as on a shared disk.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kernelwright.policies.base import Completion, PolicyUnavailable, Request, Trouble
from kernelwright.policies.local.process_policy import (
    ErrorMessage,
    OpenedElsewhere,
    ProcessOpened,
    error_of_message,
    message_of_error,
)

if TYPE_CHECKING:
    import torch

MAX_ACTOR_ATTEMPTS = 3
"""Times that a question is asked at most when actors die over it."""
MAX_REQUESTS_OF_AN_ACTOR = 256
"""Questions of one actor: each is a thread there."""
ACTOR_POLL_SECONDS = 1.0
"""Seconds between two looks at whether an answer is still wanted."""


class ActorAnswer(NamedTuple):
    """The answer to one call of an actor."""

    completions: Mapping[int, Completion]
    """Completions by the place of their question; not all of them where something went wrong."""
    trouble: ErrorMessage | None
    drawn: tuple[int, float]
    """Tokens so far, and the seconds they took."""


class PolicyActor:
    """The policy inside of the actor. Its methods run in parallel in threads."""

    def __init__(self, path: str, options: dict[str, Any]) -> None:
        """options: InProcessPolicy's."""
        from kernelwright.policies.local.in_process_policy import InProcessPolicy

        self._policy = InProcessPolicy(path, **options)

    def open(self) -> ProcessOpened | ErrorMessage:
        """Loads the model."""
        from kernelwright.policies.base import PolicyError

        try:
            self._policy.open()
        except PolicyError as error:
            return message_of_error(error)
        return ProcessOpened(self._policy.name, self._policy.capabilities, self._policy.prompt_form)

    def sample(self, requests: Sequence[Request]) -> ActorAnswer:
        """The completions by place, with the policy's error, as text, beside those that were finished before it."""
        from kernelwright.policies.base import PolicyError

        try:
            completions = self._policy.sample(requests)
        except PolicyError as error:
            return ActorAnswer(error.finished, message_of_error(error), self._policy.drawn)
        return ActorAnswer(dict(enumerate(completions)), None, self._policy.drawn)

    def update(
        self, weights: Mapping[str, torch.Tensor], revision: str | None
    ) -> str | ErrorMessage:
        """Loads new weights and returns their revision. No request may be open."""
        from kernelwright.policies.base import PolicyError

        try:
            return self._policy.update(weights, revision)
        except PolicyError as error:
            return message_of_error(error)


class RayPolicy(OpenedElsewhere):
    """A `ProcessPolicy` with several actors that take questions in turns. Ray has to be connected."""

    def __init__(
        self, path: str, *, actors: int = 1, at_once: int = MAX_REQUESTS_OF_AN_ACTOR, **options: Any
    ) -> None:
        """options: InProcessPolicy's; on a GPU an actor is given one of its own. Raises PolicyRefused."""
        self._path, self._options = path, options
        self._at_once = min(at_once, MAX_REQUESTS_OF_AN_ACTOR)
        self._lock = threading.Lock()
        self._weights: tuple[Any, str | None] | None = None
        """Where Ray keeps the last ones, and their revision."""
        self._answers_no_more = False
        self._turns = itertools.count()
        self._drawn = [(0, 0.0)] * actors
        self._before = (0, 0.0)
        """Drawn by actors that are dead."""
        self._actors = [self._begun() for _ in range(actors)]
        opened = [self._open(actor) for actor in self._actors]
        self._opened = opened[0]

    @property
    def drawn(self) -> tuple[int, float]:
        """Tokens drawn so far by all actors, and the seconds of the one that took longest."""
        tokens = self._before[0] + sum(tokens for tokens, _ in self._drawn)
        return tokens, self._before[1] + max(seconds for _, seconds in self._drawn)

    def sample(self, requests: Sequence[Request]) -> list[Completion]:
        """Answers the requests; any number of threads may ask. Raises PolicyError; after `stop_answering`
        KeyboardInterrupt.
        """
        place = next(self._turns) % len(self._actors)
        for _ in range(MAX_ACTOR_ATTEMPTS):
            actor = self._actors[place]
            answer = self._answer(place, actor, requests)
            if answer is None:
                continue
            self._drawn[place] = answer.drawn
            if answer.trouble is not None:
                trouble = error_of_message(answer.trouble)
                trouble.finished = dict(answer.completions)
                raise trouble
            return [answer.completions[number] for number in range(len(requests))]
        raise PolicyUnavailable(
            f"an actor that samples died {MAX_ACTOR_ATTEMPTS} times over one request: see the logs of the Ray cluster",
            Trouble.SERVER,
        )

    def update(self, weights: Mapping[str, torch.Tensor], revision: str | None = None) -> str:
        """Puts new weights in the place of the old ones, in every actor; gives the revision. Nobody may be asking.

        Raises PolicyRefused where a name or shape does not fit.
        """
        import ray

        self._weights = (
            ray.put({name: value.detach().cpu() for name, value in weights.items()}),
            revision,
        )
        found = [self._moved(place) for place in range(len(self._actors))]
        return found[0]

    def stop_answering(self) -> None:
        """Nobody is answered any more: who waits gets KeyboardInterrupt."""
        self._answers_no_more = True

    def close(self) -> None:
        """Ends the actors; callers that wait for an answer get KeyboardInterrupt."""
        import ray

        self._answers_no_more = True
        for actor in self._actors:
            with contextlib.suppress(Exception):
                ray.kill(actor)

    # -------------------------------------------------------------- actors
    def _begun(self) -> Any:
        """Begins an actor that Ray never restarts, and whose calls it never retries: both are done here, where the
        weights are known.
        """
        import ray

        on_gpu = str(self._options.get("device", "cpu")).startswith("cuda")
        options = {**self._options, "device": "cuda:0" if on_gpu else "cpu"}
        how = {"num_cpus": 0, "num_gpus": int(on_gpu), "max_restarts": 0, "max_task_retries": 0}
        return (
            ray.remote(PolicyActor)
            .options(max_concurrency=self._at_once + 2, **how)
            .remote(self._path, options)
        )

    def _open(self, actor: Any) -> ProcessOpened:
        import ray

        found = ray.get(actor.open.remote())
        if not isinstance(found, ProcessOpened):
            raise error_of_message(found)
        return found

    def _moved(self, place: int) -> str:
        """The revision, once an actor has the last weights; it is begun again where it has died meanwhile."""
        import ray

        for _ in range(MAX_ACTOR_ATTEMPTS):
            actor = self._actors[place]
            try:
                return self._take_weights(actor)
            except ray.exceptions.RayActorError:
                self._replace(place, actor)
        raise PolicyUnavailable(
            f"an actor that samples died {MAX_ACTOR_ATTEMPTS} times while loading weights: "
            "see the logs of the Ray cluster",
            Trouble.SERVER,
        )

    def _take_weights(self, actor: Any) -> str:
        import ray

        assert self._weights is not None
        found = ray.get(actor.update.remote(*self._weights))
        if not isinstance(found, str):
            raise error_of_message(found)
        return found

    def _answer(self, place: int, actor: Any, requests: Sequence[Request]) -> ActorAnswer | None:
        """Returns the answer, or None where the actor died and another one is in its place."""
        import ray

        try:
            asked = actor.sample.remote(list(requests))
            while not ray.wait([asked], timeout=ACTOR_POLL_SECONDS)[0]:
                if self._answers_no_more:
                    raise KeyboardInterrupt
            return ray.get(asked)
        except (
            ray.exceptions.RayActorError,
            ray.exceptions.ObjectLostError,
        ):  # the latter: a long answer went with it
            if self._answers_no_more:
                raise KeyboardInterrupt from None
            self._replace(place, actor)
            return None

    def _replace(self, place: int, dead: Any) -> None:
        """Replaces a dead actor once for all who asked it. One that dies while it begins is replaced by who asks it
        next.
        """
        import ray

        with self._lock:
            if self._actors[place] is not dead:
                return
            with contextlib.suppress(Exception):
                ray.kill(dead)
            again = self._begun()
            with contextlib.suppress(ray.exceptions.RayActorError):
                self._open(again)
                if self._weights is not None:
                    self._take_weights(again)
            tokens, seconds = self._drawn[place]
            self._before = (self._before[0] + tokens, self._before[1] + seconds)
            self._drawn[place], self._actors[place] = (0, 0.0), again
