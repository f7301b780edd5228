"""Live policy in actors on a Ray cluster: rollouts are sampled on machines other than the
trainer's.

A dead actor is replaced with the last weights, and its requests are sent again; no answer is
delivered twice. The
model folder must have the same path on every node, as on a shared disk.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

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
    from ray.actor import ActorHandle

MAX_ACTOR_ATTEMPTS = 3
"""Times a question is asked at most when actors die over it."""
MAX_REQUESTS_OF_AN_ACTOR = 256
"""Maximum number of parallel requests per actor; each is a thread there."""
ACTOR_POLL_SECONDS = 1.0
"""Seconds between two looks at whether an answer is still wanted."""


class ActorAnswer(NamedTuple):
    """Answer to a call of an actor."""

    completions: Mapping[int, Completion]
    """Completions by index of their request; incomplete after an error."""
    trouble: ErrorMessage | None
    drawn: tuple[int, float]
    """Tokens so far, and the seconds they took."""


class PolicyActor:
    """The policy inside of the actor. Its methods run in parallel in threads."""

    def __init__(self, path: str, options: dict[str, Any]) -> None:
        """Creates the policy. options: arguments of InProcessPolicy."""
        from kernelwright.policies.local.in_process_policy import InProcessPolicy

        self._policy = InProcessPolicy(path, **options)

    def open(self) -> ProcessOpened | ErrorMessage:
        """Loads the model and returns the policy's properties."""
        from kernelwright.policies.base import PolicyError

        try:
            self._policy.open()
        except PolicyError as error:
            return message_of_error(error)
        return ProcessOpened(self._policy.name, self._policy.capabilities, self._policy.prompt_form)

    def sample(self, requests: Sequence[Request]) -> ActorAnswer:
        """The completions by place, with the policy's error, as text, beside those finished
        before
        it.
        """
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
        """Starts the actors. options: arguments of InProcessPolicy; on a GPU each actor has a GPU
        of its own.

        Raises PolicyRefused.
        """
        self._path, self._options = path, options
        self._at_once = min(at_once, MAX_REQUESTS_OF_AN_ACTOR)
        self._lock = threading.Lock()
        self._weights: tuple[Any, str | None] | None = None
        """Reference to the last weights in Ray's object store, and their revision."""
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
        """Number of tokens drawn by all actors, and the seconds of the slowest actor."""
        tokens = self._before[0] + sum(tokens for tokens, _ in self._drawn)
        return tokens, self._before[1] + max(seconds for _, seconds in self._drawn)

    def sample(self, requests: Sequence[Request]) -> list[Completion]:
        """Answers the requests; any number of threads may ask. Raises PolicyError; after `stop_answering`
        KeyboardInterrupt.
        """
        index = next(self._turns) % len(self._actors)
        for _ in range(MAX_ACTOR_ATTEMPTS):
            actor = self._actors[index]
            answer = self._answer(index, actor, requests)
            if answer is None:
                continue
            self._drawn[index] = answer.drawn
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
        """Replaces the weights in every actor and returns the new revision. No request may be
        running.

        Raises PolicyRefused for a name or shape that does not match the model.
        """
        import ray

        self._weights = (
            ray.put({name: value.detach().cpu() for name, value in weights.items()}),
            revision,
        )
        revisions = [self._moved(index) for index in range(len(self._actors))]
        return revisions[0]

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
        """Starts an actor without Ray's restarts and retries; `_replace` restarts actors with the
        current weights.
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

    def _open(self, actor: ActorHandle) -> ProcessOpened:
        import ray

        opened = cast("ProcessOpened | ErrorMessage", ray.get(actor.open.remote()))
        if not isinstance(opened, ProcessOpened):
            raise error_of_message(opened)
        return opened

    def _moved(self, index: int) -> str:
        """Sends the last weights to an actor and returns their revision; replaces the actor if it
        has died.
        """
        import ray

        for _ in range(MAX_ACTOR_ATTEMPTS):
            actor = self._actors[index]
            try:
                return self._take_weights(actor)
            except ray.exceptions.RayActorError:
                self._replace(index, actor)
        raise PolicyUnavailable(
            f"an actor that samples died {MAX_ACTOR_ATTEMPTS} times while loading weights: "
            "see the logs of the Ray cluster",
            Trouble.SERVER,
        )

    def _take_weights(self, actor: ActorHandle) -> str:
        import ray

        assert self._weights is not None
        revision = cast("str | ErrorMessage", ray.get(actor.update.remote(*self._weights)))
        if not isinstance(revision, str):
            raise error_of_message(revision)
        return revision

    def _answer(
        self, index: int, actor: ActorHandle, requests: Sequence[Request]
    ) -> ActorAnswer | None:
        """Returns the answer; None if the actor died and was replaced."""
        import ray

        try:
            pending: Any = actor.sample.remote(list(requests))
            while not ray.wait([pending], timeout=ACTOR_POLL_SECONDS)[0]:
                if self._answers_no_more:
                    raise KeyboardInterrupt
            return ray.get(pending)
        except (
            ray.exceptions.RayActorError,
            ray.exceptions.ObjectLostError,
        ):  # the latter: a long answer went with it
            if self._answers_no_more:
                raise KeyboardInterrupt from None
            self._replace(index, actor)
            return None

    def _replace(self, index: int, dead: ActorHandle) -> None:
        """Replaces a dead actor once for all its callers. A replacement that dies at the start is
        replaced at the next call.
        """
        import ray

        with self._lock:
            if self._actors[index] is not dead:
                return
            with contextlib.suppress(Exception):
                ray.kill(dead)
            again = self._begun()
            with contextlib.suppress(ray.exceptions.RayActorError):
                self._open(again)
                if self._weights is not None:
                    self._take_weights(again)
            tokens, seconds = self._drawn[index]
            self._before = (self._before[0] + tokens, self._before[1] + seconds)
            self._drawn[index], self._actors[index] = (0, 0.0), again
