"""One judge on a Ray cluster, seen from the pool: an actor that is never restarted and never repeats a verdict."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from kernelwright.agent.judging.messages import (
    JudgeReady,
    VerdictError,
    VerdictReply,
    VerdictRequest,
)
from kernelwright.agent.judging.placed_judge import PlacedJudge, closed_error
from kernelwright.agent.judging.placing import JudgeHandle, VerdictUnderWay
from kernelwright.agent.judging.pool import DeviceKind, JudgeLost
from kernelwright.agent.judging.ray_actor import JudgeActor
from kernelwright.agent.judging.verdict_maker import capacity_of

_READS: TypeAdapter[VerdictReply | VerdictError] = TypeAdapter(VerdictReply | VerdictError)
STEP_POLL_SECONDS = 0.25
"""Seconds between two looks at what a verdict is at."""
MAX_ANSWER_SECONDS = 90.0
"""Seconds that an actor may take to say what a verdict is at; one that is silent for longer is taken for dead and
killed.
"""
ACTOR_CLOSING_SECONDS = 5.0
"""Seconds that an actor is given to end its processes."""
OTHER_CALLS_AT_ONCE = 4
"""Calls of an actor that are no verdicts: live, doing, stop, close."""


class ActorPlace(NamedTuple):
    """Where an actor lives."""

    name: str
    """`10.0.0.7/cuda:1`."""
    node: str
    """Ray's id of the node."""
    kind: DeviceKind
    workers: int
    """Places at the CPU rungs."""
    tasks: int = 0
    """Candidates that tasks of the cluster trace and compile for it at once; 0: its own processes do that."""


class RayJudge(PlacedJudge):
    """Makes its actor at once. Thread-safe."""

    def __init__(self, place: ActorPlace, ended: Callable[[JudgeHandle], None]) -> None:
        """`ended` is called, in a thread of this judge, whenever a verdict or the judge itself has ended."""
        device = "cpu" if place.kind is DeviceKind.CPU else "cuda:0"
        super().__init__(
            place.name, place.kind, capacity_of(device, place.workers, place.tasks), ended
        )
        self.place, self.device = place, device
        self.ready: tuple[JudgeReady, str, int] | None = None
        """What it is made with, its target, and its process; None until it has begun."""
        self.begun = threading.Event()
        """Set when it is ready, or dead."""
        self._actor = _actor(place, self.device, self.capacity)
        threading.Thread(target=self._watch, name=f"judge {self.name}", daemon=True).start()

    def begin(self, ask: VerdictRequest, work: VerdictUnderWay) -> None:
        """Hands a verdict to the actor; a thread of its own waits for it."""
        self._count(ask.number, work)
        threading.Thread(
            target=self._follow, args=(ask,), name=f"verdict {ask.number}", daemon=True
        ).start()

    def stop(self, number: int) -> None:
        """Asks the actor to end a verdict at its next step."""
        self._actor.stop.remote(number)

    def close(self) -> None:
        """Closes the judge within `ACTOR_CLOSING_SECONDS`, then kills its actor; open verdicts raise PoolClosed."""
        import ray

        self._closing = True
        with contextlib.suppress(Exception):  # whatever it says, it is killed
            ray.get(self._actor.close.remote(), timeout=ACTOR_CLOSING_SECONDS)
        with contextlib.suppress(Exception):
            ray.kill(self._actor)
        self._close_verdicts()

    def _kill(self) -> None:
        self._give_up()

    # -------------------------------------------------------------- its threads
    def _watch(self) -> None:
        """Watches the actor until it is dead."""
        import ray

        try:
            ready, target, process = ray.get(self._actor.ready.remote())
            self.ready = (JudgeReady.model_validate_json(ready), target, process)
            self.was_ready = True
            self.begun.set()
            self._ended(self)  # who waits may be given to it
            ray.get(self._actor.live.remote())
        except (
            Exception,
            SystemExit,
        ) as error:  # Ray raises the latter in every thread when its cluster is gone
            self.trouble = self.trouble or _last_line(error)
        self._takes_no_more()
        self.begun.set()
        self._ended(self)

    def _follow(self, ask: VerdictRequest) -> None:
        """One verdict, which is never asked for twice, and meanwhile what it is at."""
        import ray

        try:
            made = self._actor.make.remote(ask.model_dump_json())
            told = ""
            while not ray.wait([made], timeout=STEP_POLL_SECONDS)[0]:
                doing = ray.get(self._actor.doing.remote(ask.number), timeout=MAX_ANSWER_SECONDS)
                if doing and doing != told:
                    self._tell(ask.number, doing)
                    told = doing
            self._take_reply(ask.number, _READS.validate_json(ray.get(made)))
        except (Exception, SystemExit) as error:
            if not isinstance(error, ray.exceptions.RayTaskError):
                self._give_up()  # first: whoever asks again at once must not be given to this one
            self._end(ask.number, self._loss(error))

    def _give_up(self) -> None:
        """The actor is dead, or cannot be reached and is to be."""
        import ray

        self._takes_no_more()
        with contextlib.suppress(Exception):
            ray.kill(self._actor)

    def _loss(self, error: BaseException | None) -> Exception:
        if self._closing:
            return closed_error()
        if self._was_ended:
            return self._ended_error()
        why = f" ({_last_line(error)})" if error is not None else ""
        return JudgeLost(f"the judge {self.name} died{why} while it was at work on this verdict")


def _actor(place: ActorPlace, device: str, capacity: int) -> Any:
    """Makes the actor on that node and no other: it is never restarted, its calls are never retried."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return (
        ray.remote(JudgeActor)
        .options(
            num_cpus=1,
            num_gpus=0 if device == "cpu" else 1,
            max_restarts=0,
            max_task_retries=0,
            max_concurrency=capacity + OTHER_CALLS_AT_ONCE,
            scheduling_strategy=NodeAffinitySchedulingStrategy(place.node, soft=False),
        )
        .remote(device, place.workers, place.tasks > 0)
    )


def _last_line(error: BaseException) -> str:
    """Returns the last line of an error of Ray's, which brings a traceback: what was raised."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    first = lines[0] if lines else ""
    return f"{type(error).__name__}: {first}"[:300]
