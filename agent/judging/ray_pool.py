"""Judges on a Ray cluster: one actor for each GPU, or for each CPU slot of a cluster without GPUs.

In a cluster with GPUs and several nodes with cores, tasks on any node trace and compile candidates
(ray_front.py).

Ray's own retries are off: no actor is restarted, no call repeated. The pool replaces a dead judge
if its node is alive, and creates judges on new nodes.
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
from kernelwright.agent.judging.ray_judge import ActorSlot, RayJudge
from kernelwright.errors import InputError
from kernelwright.tools.faults import InfrastructureError
from kernelwright.tools.report import Environment

NODE_POLL_SECONDS = 3.0
"""Seconds between two looks at which nodes there are."""
MAX_CONNECT_SECONDS = 5.0
"""Seconds for a head node to accept a connection."""
CONNECTION_ADVICE = (
    "start one with `ray start --head`; one that asks for a token wants RAY_AUTH_MODE=token and its RAY_AUTH_TOKEN "
    "in this command's environment"
)
MAX_FIRST_START_SECONDS = 180.0
"""Seconds for the start of the first judge."""


class RayPool(PlacingPool):
    """Implements JudgePool."""

    def __init__(
        self, address: str, workers: int | None = None, kind: DeviceKind | None = None, spare: int = 0,
        tasks: bool | None = None,
    ) -> None:  # fmt: skip
        """Connects to the cluster and creates the judges.

        address: `HOST:PORT` of the head node, `auto`, or `local` for a cluster of this machine
        only. workers: candidates on the CPU rungs of each GPU at once; None: the node's cores
        divided by its GPUs. Without GPUs: judges of each node; None: one for each core. kind: kind
        of the judges; None: GPUs if the cluster has any. spare: number of GPUs without a judge, as
        for actors that sample. tasks: trace and compile candidates in tasks on cores without a
        judge; None: yes for GPUs in a cluster with several nodes with cores.

        Raises InputError if Ray is not installed or the cluster is missing, InfrastructureError for
        a cluster without judges.
        """
        self._began = _connect(address)
        self._workers, self._tasks = workers, tasks
        nodes = _nodes()
        gpus = any(node["Resources"].get("GPU") for node in nodes)
        kind = kind or (DeviceKind.CUDA if gpus else DeviceKind.CPU)
        super().__init__(kind)
        self._kind = kind
        self._ready: tuple[JudgeReady, str, int] | None = None
        """First message of the first judge. Stored, so no caller waits for restarting judges after
        a loss.
        """
        self._occupied: set[str] = set()
        """Names of the slots with a judge, and of the spare slots."""
        self._leaving = threading.Event()
        if kind is DeviceKind.CUDA:
            self._occupied.update(
                slot.name for slot in [p for node in nodes for p in self._slots(node)][:spare]
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
        """The single kind of device of the pool's judges."""
        return (self._kind,)

    def capacity(self, device: DeviceKind) -> int:
        """Returns the number of verdicts in parallel on the present judges."""
        return sum(judge.capacity for judge in self.judges() if judge.device is device)

    def environment(self, device: DeviceKind) -> Environment:
        """Returns versions and hardware of the first ready judge; waits for its start."""
        return self._first_ready()[0].environment

    def target(self, device: DeviceKind) -> str:
        """Returns the compilation target of the first ready judge; waits for its start."""
        return self._first_ready()[1]

    @property
    def process_ids(self) -> dict[str, int]:
        """Process ids of the live actors, by judge name."""
        with self._lock:
            return {
                j.name: j.ready[2]
                for j in self._judges
                if isinstance(j, RayJudge) and j.ready and j.state.alive
            }

    def close(self) -> None:
        """Closes the judges, and disconnects from the cluster if this pool had connected."""
        import ray

        self._leaving.set()
        super().close()
        if self._began:
            ray.shutdown()

    def _first_ready(self) -> tuple[JudgeReady, str, int]:
        """Returns the first message of the first judge; waits for its start. Raises
        InfrastructureError.
        """
        if self._ready is None:
            self._ready = self._wait_for_ready()
        return self._ready

    def _wait_for_ready(self) -> tuple[JudgeReady, str, int]:
        with self._lock:
            judges = [judge for judge in self._judges if isinstance(judge, RayJudge)]
        first_message = next((judge.ready for judge in judges if judge.ready is not None), None)
        if first_message is not None:
            return first_message
        for judge in judges:
            if judge.begun.wait(MAX_FIRST_START_SECONDS) and judge.ready is not None:
                return judge.ready
        why = next((judge.trouble for judge in judges if judge.trouble), "it takes too long")
        raise InfrastructureError(f"no judge starts on the Ray cluster: {why}")

    # -------------------------------------------------------------- nodes
    def _replacement(self, judge: JudgeHandle) -> JudgeHandle | None:
        assert isinstance(judge, RayJudge)
        if judge.slot.node in {node["NodeID"] for node in _nodes()}:
            return RayJudge(judge.slot, self._ended)
        # The node has left: should it come back, `_look` fills the slot again.
        self._occupied.discard(judge.name)
        return None

    def _look(self) -> None:
        """Creates a judge in every slot without a judge."""
        nodes = _nodes()
        slots = [slot for node in nodes for slot in self._slots(node)]
        tasks = self._tasks_of_each(nodes, len(slots))
        slots = [slot._replace(tasks=tasks) for slot in slots]
        with self._lock:
            new_slots = [
                slot for slot in slots if slot.name not in self._occupied and not self._closed
            ]
            self._occupied.update(slot.name for slot in new_slots)
            self._judges += [RayJudge(slot, self._ended) for slot in new_slots]
        if new_slots:
            self._assign()

    def _look_again(self) -> None:
        while not self._leaving.wait(NODE_POLL_SECONDS):
            try:
                self._look()
            # The head node may be out of reach for a moment; a lost judge is noticed by its thread.
            except Exception:
                logging.getLogger(__name__).warning(
                    "the Ray cluster does not answer", exc_info=True
                )

    def _slots(self, node: dict[str, Any]) -> list[ActorSlot]:
        has, address = node["Resources"], node["NodeManagerAddress"]
        cores, gpus = int(has.get("CPU", 0)), int(has.get("GPU", 0))
        count = gpus if self._kind is DeviceKind.CUDA else min(cores, self._workers or cores)
        workers = self._workers or max(1, cores // max(1, gpus))
        named = f"{address}-{node['NodeID'][:6]}"
        return [
            ActorSlot(f"{named}/{self._kind}:{k}", node["NodeID"], self._kind, workers)
            for k in range(count)
        ]

    def _tasks_of_each(self, nodes: Sequence[dict[str, Any]], judges: int) -> int:
        """Returns the number of candidates traced and compiled at once by tasks for each judge; 0:
        by the judge's processes.
        """
        cores = [int(node["Resources"].get("CPU", 0)) for node in nodes]
        free = sum(cores) - judges  # each judge holds a core
        uses_tasks = self._tasks
        if uses_tasks is None:
            uses_tasks = self._kind is DeviceKind.CUDA and sum(count > 0 for count in cores) > 1
        return max(1, free // max(1, judges)) if uses_tasks and free > 0 else 0


def _nodes() -> list[dict[str, Any]]:
    """Returns the live nodes."""
    import ray

    return [node for node in ray.nodes() if node["Alive"]]


def _check_address(address: str) -> None:
    """Raises InputError for an unreachable head node at once; Ray itself would wait for minutes."""
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
    """Connects to the cluster. Returns False if the process was connected already. Raises
    InputError.
    """
    # By default Ray sends usage statistics to its makers.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Read by Ray on import. Ray would print the death of actors on stdout, amid a command's JSON.
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
