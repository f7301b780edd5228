"""Judges on this machine: one or several processes for each GPU, or one for each CPU slot without a
GPU.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.agent.judging.local_judge import JudgeWalls, LocalJudge
from kernelwright.agent.judging.placing import JudgeHandle, PlacingPool
from kernelwright.agent.judging.pool import DeviceKind
from kernelwright.agent.judging.verdict_maker import capacity_of
from kernelwright.tools.report import Environment


class LocalPool(PlacingPool):
    """Implements JudgePool with local processes. A dead judge is replaced; its verdicts end with
    JudgeLost.
    """

    def __init__(
        self,
        devices: Sequence[str],
        workers: int,
        judges_per_gpu: int = 1,
        walls: JudgeWalls | None = None,
    ) -> None:
        """Starts the judges.

        devices: `cpu` or `cuda:N`, the default kind first; `cpu` stands for `workers` judges of one
        verdict each. workers: candidates on the CPU rungs at once, all judges of a GPU together.
        judges_per_gpu: processes for each GPU; these check answers in parallel and time one after
        the other. walls: limits of the judges' view of this process; None: no limits.

        Raises InfrastructureError for a missing GPU.
        """
        super().__init__(_kind(devices[0]))
        self._sharers = max(1, judges_per_gpu)
        self._workers, self._walls = workers, walls
        self._devices_by_name: dict[str, str] = {}
        for device in devices:
            self._devices_by_name |= _judge_names(device, workers, self._sharers)
        self._environments = {_kind(device): _environment(device) for device in reversed(devices)}
        self._targets = {_kind(device): _target(device) for device in reversed(devices)}
        with self._lock:
            self._judges += [self._started(name) for name in self._devices_by_name]

    @property
    def devices(self) -> Sequence[DeviceKind]:
        """The kinds of device of the judges, without repetition, the default kind first."""
        return tuple(dict.fromkeys(map(_kind, self._devices_by_name.values())))

    def capacity(self, device: DeviceKind) -> int:
        """Returns the number of verdicts in parallel on this kind of device."""
        return sum(
            capacity_of(judge_device, self._workers_of(judge_device))
            for judge_device in self._devices_by_name.values()
            if _kind(judge_device) is device
        )

    def environment(self, device: DeviceKind) -> Environment:
        """Returns versions and hardware behind verdicts on this kind of device. Raises KeyError for
        another kind.
        """
        return self._environments[device]

    def target(self, device: DeviceKind) -> str:
        """Returns the compilation target of this kind of device, such as `sm_90`. Raises KeyError
        for another kind.
        """
        return self._targets[device]

    @property
    def process_ids(self) -> dict[str, int]:
        """Process ids of the live judges, by judge name."""
        with self._lock:
            return {
                j.name: j.process_id
                for j in self._judges
                if isinstance(j, LocalJudge) and j.state.alive
            }

    def _started(self, name: str) -> JudgeHandle:
        device = self._devices_by_name[name]
        sharers = 1 if device == "cpu" else self._sharers
        return LocalJudge(name, device, self._workers_of(device), self._ended, sharers, self._walls)

    def _workers_of(self, device: str) -> int:
        """Returns the number of candidates on the CPU rungs of one judge at once."""
        return self._workers if device == "cpu" else max(1, self._workers // self._sharers)

    def _replacement(self, judge: JudgeHandle) -> JudgeHandle | None:
        return self._started(judge.name)


def _kind(device: str) -> DeviceKind:
    return DeviceKind.CPU if device == "cpu" else DeviceKind.CUDA


def _judge_names(device: str, workers: int, judges_per_gpu: int) -> dict[str, str]:
    """Returns the device of each judge on a device, by the judge's name."""
    if device == "cpu":
        return {f"cpu:{number}": "cpu" for number in range(workers)}
    if judges_per_gpu == 1:
        return {device: device}
    return {f"{device}/{number}": device for number in range(judges_per_gpu)}


def _environment(device: str) -> Environment:
    from kernelwright.tools.hardware.machine_info import evaluating_environment

    return evaluating_environment(device)[0]


def _target(device: str) -> str:
    from kernelwright.agent.runtime.arguments import choose_targets

    return choose_targets([], device)[0]
