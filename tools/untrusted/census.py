"""What the host code asks of torch beside its launches: operators that compute, operators that only allocate, view or copy, and reads by the host."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch

from tools.operators import READS, moves, operations


class Census:
    """Filled by `note`, once an operator."""

    def __init__(self) -> None:
        self._compute: Counter[str] = Counter()
        self._layout: Counter[str] = Counter()
        self._reads: Counter[str] = Counter()
        self._operations = 0

    def note(self, func: Any, args: Any, kwargs: dict[str, Any], made: Any) -> None:
        name = func.overloadpacket.__name__
        if name in READS or (name == "_to_copy" and _leaves_the_gpu(args, kwargs)):
            self._reads[name] += 1
        elif moves(func):
            self._layout[str(func)] += 1
        else:
            self.note_computing(func, args, kwargs, made)

    def note_computing(self, func: Any, args: Any, kwargs: dict[str, Any], made: Any) -> None:
        """Notes an operator that computes, and no other."""
        if moves(func) or func.overloadpacket.__name__ in READS:
            return
        self._compute[str(func)] += 1
        self._operations += operations(func, args, kwargs, made)

    def read(self, name: str) -> None:
        """A read by the host that no operator shows, such as numpy()."""
        self._reads[name] += 1

    def as_message(self) -> dict[str, Any]:
        return {
            "compute_ops": dict(self._compute),
            "layout_ops": dict(self._layout),
            "host_reads": dict(self._reads),
            "operations": self._operations,
        }


def _leaves_the_gpu(args: Any, kwargs: dict[str, Any]) -> bool:
    target = kwargs.get("device")
    return (
        bool(args)
        and isinstance(args[0], torch.Tensor)
        and args[0].device.type == "cuda"
        and target is not None
        and torch.device(target).type == "cpu"
    )
