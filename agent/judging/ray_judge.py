"""Client side of a judge on a Ray cluster: an actor, never restarted, whose calls are never
repeated.
"""

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
"""Seconds between two questions for the current step of a verdict."""
MAX_ANSWER_SECONDS = 90.0
"""Seconds for an actor's answer about the current step. A silent actor counts as dead and is
killed.
"""
ACTOR_CLOSING_SECONDS = 5.0
"""Seconds of grace for an actor to end its processes."""
OTHER_CALLS_AT_ONCE = 4
"""Parallel calls of an actor beside verdicts: live, doing, stop, close."""


class ActorSlot(NamedTuple):
    """Node and resources of an actor."""

    name: str
    """Name of the judge: `10.0.0.7/cuda:1`."""
    node: str
    """Ray's id of the node."""
    kind: DeviceKind
    workers: int
    """Candidates on the CPU rungs at once."""
    tasks: int = 0
    """Candidates traced and compiled at once by tasks of the cluster; 0: by the actor's own
    processes.
    """


class RayJudge(PlacedJudge):
    """Judge in a Ray actor, created at once. Thread-safe."""

    def __init__(self, slot: ActorSlot, ended: Callable[[JudgeHandle], None]) -> None:
        """Creates the actor. ended: called in a thread of this judge after the end of each verdict
        and of the judge.
        """
        # Ray shows an actor its own GPU only, under the number 0.
        device = "cpu" if slot.kind is DeviceKind.CPU else "cuda:0"
        super().__init__(slot.name, slot.kind, capacity_of(device, slot.workers, slot.tasks), ended)
        self.slot, self.device = slot, device
        self.ready: tuple[JudgeReady, str, int] | None = None
        """JudgeReady message, compilation target and process id; None during the start."""
        self.begun = threading.Event()
        """Set once the judge is ready or dead."""
        self._actor = _actor(slot, self.device, self.capacity)
        threading.Thread(target=self._watch, name=f"judge {self.name}", daemon=True).start()

    def begin(self, ask: VerdictRequest, work: VerdictUnderWay) -> None:
        """Sends a verdict to the actor; a new thread waits for the reply."""
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

        # First: the verdicts of a dying actor then end with PoolClosed instead of JudgeLost.
        self._closing = True
        with contextlib.suppress(Exception):  # the actor is killed below in any case
            ray.get(self._actor.close.remote(), timeout=ACTOR_CLOSING_SECONDS)
        with contextlib.suppress(Exception):
            ray.kill(self._actor)
        self._close_verdicts()

    def _kill(self) -> None:
        self._give_up()

    # -------------------------------------------------------------- its threads
    def _watch(self) -> None:
        """Waits for the actor's start, then for its death."""
        import ray

        try:
            ready, target, process = ray.get(self._actor.ready.remote())
            self.ready = (JudgeReady.model_validate_json(ready), target, process)
            self.was_ready = True
            self.begun.set()
            self._ended(self)  # waiting verdicts may be assigned to this judge
            ray.get(self._actor.live.remote())
        # Ray raises SystemExit in every thread once its cluster is gone.
        except (Exception, SystemExit) as error:
            self.trouble = self.trouble or _summary(error)
        self._takes_no_more()
        self.begun.set()
        self._ended(self)

    def _follow(self, ask: VerdictRequest) -> None:
        """Requests one verdict, never twice, and reports its steps until the reply."""
        import ray

        try:
            verdict = self._actor.make.remote(ask.model_dump_json())
            reported_step = ""
            while not ray.wait([verdict], timeout=STEP_POLL_SECONDS)[0]:
                doing = ray.get(self._actor.doing.remote(ask.number), timeout=MAX_ANSWER_SECONDS)
                if doing and doing != reported_step:
                    self._tell(ask.number, doing)
                    reported_step = doing
            self._take_reply(ask.number, _READS.validate_json(ray.get(verdict)))
        except (Exception, SystemExit) as error:
            if not isinstance(error, ray.exceptions.RayTaskError):
                self._give_up()  # first: a repeated verdict must not come to this judge
            self._end(ask.number, self._loss(error))

    def _give_up(self) -> None:
        """Kills an actor: dead, or out of reach."""
        import ray

        self._takes_no_more()
        with contextlib.suppress(Exception):
            ray.kill(self._actor)

    def _loss(self, error: BaseException | None) -> Exception:
        if self._closing:
            return closed_error()
        if self._was_ended:
            return self._ended_error()
        why = f" ({_summary(error)})" if error is not None else ""
        return JudgeLost(f"the judge {self.name} died{why} while it was at work on this verdict")


def _actor(slot: ActorSlot, device: str, capacity: int) -> Any:
    """Creates the actor on exactly this node, without restarts and without retries."""
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
            scheduling_strategy=NodeAffinitySchedulingStrategy(slot.node, soft=False),
        )
        .remote(device, slot.workers, slot.tasks > 0)
    )


def _summary(error: BaseException) -> str:
    """Returns the type of an exception and the first line of its message, at most 300 characters.
    Ray appends tracebacks.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    first = lines[0] if lines else ""
    return f"{type(error).__name__}: {first}"[:300]
