"""The GPU side of a replaying process: kernels as binaries, allocations between margins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelwright.tools.gpu.persistent_memory import give_back_unused
from kernelwright.tools.replaying.allocations import Allocations
from kernelwright.tools.replaying.gpu import launching as gpu
from kernelwright.tools.replaying.gpu.timing import timing_of
from kernelwright.tools.replaying.replay import Replay
from kernelwright.tools.replaying.steps import Call
from kernelwright.tools.report import Failure
from kernelwright.tools.tensor_memory import POISON_BYTE
from kernelwright.tools.trace.reinterpreted import Table
from kernelwright.tools.trace.trace import Traced

LARGE_CALL_BYTES = 1 << 30
"""Total allocations of a call, in bytes, above which its memory is returned to the device."""


class OnGpu:
    """GPU implementation of ReplayDevice (see OnCpu for the CPU)."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._binaries: gpu.Binaries | None = None
        self._allocations = self._fresh(POISON_BYTE)
        self._lasting: list[Allocations] = []
        """Allocations of the set-up, and of the first call if later calls use its tensors."""

    def _fresh(self, poison: int) -> Allocations:
        return Allocations(poison, device=self._device)

    def open(self, traced: Traced, binaries: Mapping[str, Mapping[str, Any]]) -> None:
        """Loads the binaries after unloading the previous candidate's, and returns large amounts of
        memory to the device."""
        self._unload()
        give_back_unused()
        self._binaries = gpu.Binaries(binaries, self._device)
        self._binaries.load()

    def _unload(self) -> None:
        self._lasting, self._allocations = [], self._fresh(POISON_BYTE)
        if self._binaries is not None:
            gpu.synchronize()
            self._binaries.unload()
            self._binaries = None

    def close(self) -> None:
        """Unloads the binaries and returns all unused memory to the device."""
        import torch

        self._unload()
        torch.cuda.empty_cache()

    def stopwatch(self, replay: Replay, traced: Traced) -> Any:
        """Returns the clock of the open trace."""
        self._in_order()
        return timing_of(replay, traced, self._launch)

    def _launch(
        self, key: str, grid: tuple[int, int, int], args: Mapping[str, Any], table: Table
    ) -> None:
        assert self._binaries is not None
        self._binaries.launch(key, grid, args)

    def _in_order(self, shuffle: int = 0) -> None:
        """Reverses the order of the programs for odd shuffles, if the launch permits."""
        if self._binaries is not None:
            self._binaries.reverse = bool(shuffle & 1)

    def call_of_setup(self) -> Call:
        """Returns the call that runs the preparation. Its memory stays between margins while the
        trace is open."""
        self._in_order()
        self._allocations = self._fresh(POISON_BYTE)
        self._lasting = [self._allocations]
        return Call(self._launch, self._allocations, poison=POISON_BYTE)

    def prepared(self) -> None:
        """Detaches the set-up's memory, which belongs to its tensors now."""
        self._allocations = self._fresh(POISON_BYTE)

    def call(self, replay: Replay, call_name: str, *, poison: int, shuffle: int) -> Call:
        """Returns the call that runs forward. shuffle: odd numbers reverse the order of the programs.

        call_name: "later" for a call that uses the tensors which a first call left.
        """
        if call_name != "later" or not replay.has_later:
            replay.forget_first()
            self._lasting = self._lasting[:1]
        self._in_order(shuffle)
        self._allocations = self._fresh(poison)
        return Call(self._launch, self._allocations, poison=poison)

    def called(self, replay: Replay, call_name: str) -> None:
        """Releases the memory of a call; memory of tensors kept by a first call stays between
        margins."""
        if call_name != "later" and replay.has_later:
            self._lasting.append(self._allocations)
        self._in_order()
        large = self._allocations.made_bytes() > LARGE_CALL_BYTES
        self._allocations = self._fresh(POISON_BYTE)
        if large:  # the judge computes what it expects of the next call meanwhile
            give_back_unused()

    def finish(self, activity: str = "a kernel") -> None:
        """Waits for the device. Raises DeviceDied, with the activity as its cause."""
        gpu.synchronize(activity)

    def noted(self) -> dict[str, Any]:
        """Reports writes to the margins around the call's memory; reads outside are not visible on
        a GPU."""
        outside = any(
            allocations.written_outside() for allocations in (self._allocations, *self._lasting)
        )
        return {
            "written_outside": "a kernel writes outside of its tensors" if outside else "",
            "read_outside": "",
        }

    def explained(self, error: BaseException, failure: Failure) -> tuple[Failure, bool]:
        """Returns the failure according to the driver's error, and whether the process's context is
        lost."""
        driver_failure, dead = gpu.failure_of(error)
        return (
            driver_failure.with_(where=failure.where)
            if dead or driver_failure.fault is not failure.fault
            else failure
        ), dead
