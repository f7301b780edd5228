"""Driver for Triton in a process without a GPU."""

from __future__ import annotations

from typing import Any

from kernelwright.tools.hardware.targets import Target


class PretendedDriver:
    """Answers questions of Triton's device functions at compile time
    (`tl.target_info.is_cuda()`).

    Activated by `triton.runtime.driver.set_active`.
    """

    def __init__(self, target: Target) -> None:
        self._target = target

    def get_current_target(self) -> Any:
        """Returns Triton's GPUTarget of the compile target."""
        return self._target.gpu_target()
