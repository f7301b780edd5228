"""Judges on this machine: one process or several for each GPU, or one for each CPU slot where there is none."""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.agent.judging.local_judge import JudgeWalls, LocalJudge
from kernelwright.agent.judging.placing import JudgeHandle, PlacingPool
from kernelwright.agent.judging.pool import DeviceKind
from kernelwright.agent.judging.verdict_maker import capacity_of
from kernelwright.tools.report import Environment


class LocalPool(PlacingPool):
    """Implements JudgePool. A judge that dies is started again; its verdicts are not (JudgeLost)."""

    def __init__(
        self,
        devices: Sequence[str],
        workers: int,
        judges_per_gpu: int = 1,
        walls: JudgeWalls | None = None,
    ) -> None:
        """devices: `cpu` or `cuda:N`, the default kind first; `cpu` stands for `workers` judges of one verdict each.
        judges_per_gpu: processes for each GPU, which check answers side by side and time one after the other, with
        `workers` places at the CPU rungs together. walls: what the judges may know of this process; None for all.

        Raises InfrastructureError where a GPU is not there.
        """
        super().__init__(_kind(devices[0]))
        self._sharers = max(1, judges_per_gpu)
        self._workers, self._walls = workers, walls
        self._places = {
            name: place
            for device in devices
            for name, place in _places(device, workers, self._sharers)
        }
        self._environments = {_kind(device): _environment(device) for device in reversed(devices)}
        self._targets = {_kind(device): _target(device) for device in reversed(devices)}
        with self._lock:
            self._judges += [self._started(name) for name in self._places]

    @property
    def devices(self) -> Sequence[DeviceKind]:
        """The kinds of device that the pool judges on, each once."""
        return tuple(dict.fromkeys(map(_kind, self._places.values())))

    def capacity(self, device: DeviceKind) -> int:
        """Verdicts that its judges of this kind of device make at once."""
        return sum(
            capacity_of(place, self._workers_of(place))
            for place in self._places.values()
            if _kind(place) is device
        )

    def environment(self, device: DeviceKind) -> Environment:
        """Versions and hardware that verdicts of this kind of device depend on. Raises KeyError for another kind."""
        return self._environments[device]

    def target(self, device: DeviceKind) -> str:
        """The compilation target of this kind of device, as sm_90. Raises KeyError for another kind."""
        return self._targets[device]

    @property
    def process_ids(self) -> dict[str, int]:
        """The process ids of the judges that are alive, by the judge's name."""
        with self._lock:
            return {
                j.name: j.process_id
                for j in self._judges
                if isinstance(j, LocalJudge) and j.state.alive
            }

    def _started(self, name: str) -> JudgeHandle:
        device = self._places[name]
        sharers = 1 if device == "cpu" else self._sharers
        return LocalJudge(name, device, self._workers_of(device), self._ended, sharers, self._walls)

    def _workers_of(self, device: str) -> int:
        """Places at the CPU rungs of one judge."""
        return self._workers if device == "cpu" else max(1, self._workers // self._sharers)

    def _replacement(self, judge: JudgeHandle) -> JudgeHandle | None:
        return self._started(judge.name)


def _kind(device: str) -> DeviceKind:
    return DeviceKind.CPU if device == "cpu" else DeviceKind.CUDA


def _places(device: str, workers: int, judges_per_gpu: int) -> list[tuple[str, str]]:
    """Name and device of each judge."""
    if device == "cpu":
        return [(f"cpu:{number}", "cpu") for number in range(workers)]
    if judges_per_gpu == 1:
        return [(device, device)]
    return [(f"{device}/{number}", device) for number in range(judges_per_gpu)]


def _environment(device: str) -> Environment:
    from kernelwright.tools.hardware.machine_info import evaluating_environment

    return evaluating_environment(device)[0]


def _target(device: str) -> str:
    from kernelwright.agent.runtime.arguments import choose_targets

    return choose_targets([], device)[0]
