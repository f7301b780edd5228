"""Judges on a Ray cluster: one actor for each GPU, or for each CPU slot where the cluster has none.

Where several nodes have cores for GPUs, candidates are traced and compiled by tasks on any of them (ray_front.py).

Ray's own retries are off: an actor is not restarted and a call is not repeated. A judge that dies is replaced here
while its node is alive; nodes that join are given judges.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Sequence
from typing import Any

from kernelwright.agent.judging.messages import JudgeReady
from kernelwright.agent.judging.placing import JudgeHandle, PlacingPool
from kernelwright.agent.judging.pool import DeviceKind
from kernelwright.agent.judging.ray_judge import ActorPlace, RayJudge
from kernelwright.errors import InputError
from kernelwright.tools.faults import InfrastructureError
from kernelwright.tools.report import Environment

NODE_POLL_SECONDS = 3.0
"""Seconds between two looks at which nodes there are."""
MAX_CONNECT_SECONDS = 5.0
"""Seconds that a head node may take to accept a connection."""
CONNECTION_ADVICE = (
    "start one with `ray start --head`; one that asks for a token wants RAY_AUTH_MODE=token and its RAY_AUTH_TOKEN "
    "in this command's environment"
)
MAX_FIRST_START_SECONDS = 180.0
"""Seconds that the first judge may take to begin."""


class RayPool(PlacingPool):
    """Implements JudgePool."""

    def __init__(
        self, address: str, workers: int | None = None, kind: DeviceKind | None = None, spare: int = 0,
        tasks: bool | None = None,
    ) -> None:  # fmt: skip
        """address: `HOST:PORT` of the head node, `auto`, or `local` for a cluster of this machine alone.

        workers: places at the CPU rungs of each GPU; None takes the node's cores over its GPUs. Where there is no GPU,
        judges of each node; None takes one a core. kind: of the judges; None takes GPUs where the cluster has any.
        spare: GPUs that are left to others, as to actors that sample. tasks: whether candidates are traced and compiled
        by tasks on cores that no judge has; None does so for GPUs where several nodes have cores.
        Raises InputError where Ray is not installed or there is no cluster, and InfrastructureError where it has no
        judge.
        """
        self._began = _connect(address)
        self._workers, self._tasks = workers, tasks
        nodes = _nodes()
        gpus = any(node["Resources"].get("GPU") for node in nodes)
        kind = kind or (DeviceKind.CUDA if gpus else DeviceKind.CPU)
        super().__init__(kind)
        self._kind = kind
        self._ready: tuple[JudgeReady, str, int] | None = None
        """The first message of the judge that began first. It is kept, so that no caller waits for judges that restart
        after a loss.
        """
        self._given: set[str] = set()
        """Names of the places that have a judge."""
        self._leaving = threading.Event()
        if kind is DeviceKind.CUDA:
            self._given.update(
                place.name for place in [p for node in nodes for p in self._places(node)][:spare]
            )
        self._look()
        if not self._judges:
            self.close()
            raise InfrastructureError(
                f"the Ray cluster {address} has no CPU and no GPU to judge on: add a node to it, or leave out --ray"
            )
        self._looking = threading.Thread(target=self._look_again, daemon=True)
        self._looking.start()

    @property
    def devices(self) -> Sequence[DeviceKind]:
        """The one kind of device that the pool's judges have."""
        return (self._kind,)

    def capacity(self, device: DeviceKind) -> int:
        """Verdicts that the judges which are there make at once."""
        return sum(judge.capacity for judge in self.judges() if judge.device is device)

    def environment(self, device: DeviceKind) -> Environment:
        """Versions and hardware of the first judge that is ready, which is waited for."""
        return self._first_ready()[0].environment

    def target(self, device: DeviceKind) -> str:
        """The compilation target of the first judge that is ready, which is waited for."""
        return self._first_ready()[1]

    @property
    def process_ids(self) -> dict[str, int]:
        """The process ids of the actors that have begun and are alive, by the judge's name."""
        with self._lock:
            return {
                j.name: j.ready[2]
                for j in self._judges
                if isinstance(j, RayJudge) and j.ready and j.state.alive
            }

    def close(self) -> None:
        """Closes the judges, and leaves the cluster where this pool had joined it."""
        import ray

        self._leaving.set()
        super().close()
        if self._began:
            ray.shutdown()

    def _first_ready(self) -> tuple[JudgeReady, str, int]:
        """Waits for the judge that begins first. Raises InfrastructureError."""
        if self._ready is None:
            self._ready = self._wait_for_ready()
        return self._ready

    def _wait_for_ready(self) -> tuple[JudgeReady, str, int]:
        with self._lock:
            judges = [judge for judge in self._judges if isinstance(judge, RayJudge)]
        found = next((judge.ready for judge in judges if judge.ready is not None), None)
        if found is not None:
            return found
        for judge in judges:
            if judge.begun.wait(MAX_FIRST_START_SECONDS) and judge.ready is not None:
                return judge.ready
        why = next((judge.trouble for judge in judges if judge.trouble), "it takes too long")
        raise InfrastructureError(f"no judge starts on the Ray cluster: {why}")

    # -------------------------------------------------------------- nodes
    def _replacement(self, judge: JudgeHandle) -> JudgeHandle | None:
        assert isinstance(judge, RayJudge)
        if judge.place.node in {node["NodeID"] for node in _nodes()}:
            return RayJudge(judge.place, self._ended)
        self._given.discard(judge.name)
        return None

    def _look(self) -> None:
        """Gives a judge to every place that has none."""
        nodes = _nodes()
        places = [place for node in nodes for place in self._places(node)]
        tasks = self._tasks_of_each(nodes, len(places))
        places = [place._replace(tasks=tasks) for place in places]
        with self._lock:
            new = [place for place in places if place.name not in self._given and not self._closed]
            self._given.update(place.name for place in new)
            self._judges += [RayJudge(place, self._ended) for place in new]
        if new:
            self._place()

    def _look_again(self) -> None:
        while not self._leaving.wait(NODE_POLL_SECONDS):
            try:
                self._look()
            except (
                Exception
            ):  # the head node is away for a moment: what is under way finds out by itself
                logging.getLogger(__name__).warning(
                    "the Ray cluster does not answer", exc_info=True
                )

    def _places(self, node: dict[str, Any]) -> list[ActorPlace]:
        has, address = node["Resources"], node["NodeManagerAddress"]
        cores, gpus = int(has.get("CPU", 0)), int(has.get("GPU", 0))
        count = gpus if self._kind is DeviceKind.CUDA else min(cores, self._workers or cores)
        workers = self._workers or max(1, cores // max(1, gpus))
        named = f"{address}-{node['NodeID'][:6]}"
        return [
            ActorPlace(f"{named}/{self._kind}:{k}", node["NodeID"], self._kind, workers)
            for k in range(count)
        ]

    def _tasks_of_each(self, nodes: Sequence[dict[str, Any]], judges: int) -> int:
        """Candidates that are traced and compiled at once for one judge by tasks; 0 where its own processes do that."""
        cores = [int(node["Resources"].get("CPU", 0)) for node in nodes]
        free = sum(cores) - judges  # a judge has one of them
        wanted = self._tasks
        if wanted is None:
            wanted = self._kind is DeviceKind.CUDA and sum(count > 0 for count in cores) > 1
        return max(1, free // max(1, judges)) if wanted and free > 0 else 0


def _nodes() -> list[dict[str, Any]]:
    """Returns the nodes that are alive."""
    import ray

    return [node for node in ray.nodes() if node["Alive"]]


def _check_address(address: str) -> None:
    """Ray itself waits for minutes for a head node that is not there. Raises InputError."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=MAX_CONNECT_SECONDS).close()
    except OSError as error:
        raise InputError(
            f"--ray {address}: there is no cluster ({error}): start one with `ray start --head`, and give its address"
        ) from None


def _connect(address: str) -> bool:
    """Connects to the cluster; says whether it was this call that connected. Raises InputError."""
    os.environ.setdefault(
        "RAY_USAGE_STATS_ENABLED", "0"
    )  # Ray tells its makers what is run, unless it is told not to
    # Ray reads this when it is imported. It would print the death of actors on stdout, amid the JSON of a command.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".*")
    import ray

    _check_address(address)
    if ray.is_initialized():
        return False
    loopback: dict[str, Any] = (
        {"_node_ip_address": address.partition(":")[0]} if address.startswith("127.") else {}
    )
    try:
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level=logging.ERROR,
            include_dashboard=None,
            **loopback,
        )
    except (ConnectionError, ValueError, RuntimeError) as error:
        line = " ".join(str(error).split())[:300]
        raise InputError(
            f"--ray {address}: there is no cluster ({line}): {CONNECTION_ADVICE}"
        ) from None
    return True
