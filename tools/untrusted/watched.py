"""The one dispatch mode round a candidate: counts what its host code asks of torch, lays every fresh tensor between sentinels, keeps contents masked."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tools.dispatch import without_dynamo
from tools.untrusted import graphs
from tools.untrusted.census import Census
from tools.untrusted.mask import Mask, storages_in, unique

MARGIN = 1 << 16
"""Bytes."""
SENTINEL = 0xA5
_aten = torch.ops.aten

_FILLED: dict[Any, float | None] = {
    _aten.empty.memory_format: None, _aten.empty_strided.default: None, _aten.empty_like.default: None, _aten.new_empty.default: None, _aten.new_empty_strided.default: None,
    _aten.zeros.default: 0, _aten.zeros_like.default: 0, _aten.new_zeros.default: 0, _aten.ones.default: 1, _aten.ones_like.default: 1, _aten.new_ones.default: 1,
}  # fmt: skip
"""Allocating operators and what they fill with; None: poison. full and its kin keep their own storage."""
_RAW = {_aten.lift_fresh.default, _aten.lift.default}
"""Tensors made of Python numbers: their contents were never masked."""


@without_dynamo
class Watched(TorchDispatchMode):
    """While it is active in this thread."""

    def __init__(self, device: str, poison: int | None, mask: Mask | None) -> None:
        """poison: the byte that fills what is allocated and not written; None leaves allocations alone."""
        super().__init__()
        self.census = Census()
        self._device, self._poison, self.mask = device, poison, mask
        self._kept: list[tuple[torch.Tensor, int, int]] = []
        self._paused = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if graphs.capturing() and not self._paused:
            return self._captured(func, args, kwargs)
        return self._done(func, args, kwargs)

    def _captured(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """In the capture of a CUDA graph that is pretended."""
        if graphs.writes(func):
            graphs.keep(lambda: func(*args, **kwargs))
            return graphs.written(args, kwargs)
        made = self._done(func, args, kwargs)
        if _FILLED.get(func, 0) is not None:
            graphs.keep_filling(made, func, args, kwargs)
        return made

    def _done(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if self._paused:
            made = func(*args, **kwargs)
            self.census.note_computing(func, args, kwargs, made)
            return made
        same = func.is_view and func not in _RAW
        made = func(*args, **kwargs) if self.mask is None or same else self.masked(self.mask, func, args, kwargs)
        self.census.note(func, args, kwargs, made)
        fresh = func in _FILLED and self._poison is not None and type(made) is torch.Tensor
        if not fresh or made.device.type != self._device or made.layout is not torch.strided or not made.numel():
            return made
        return self._between_margins(made, _FILLED[func])

    def masked(self, mask: Mask, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """The operator sees real contents; what it leaves behind is masked."""
        made: Any = ()
        if func in _RAW:
            made = func(*args, **kwargs)
            mask.close_new(storages_in(made))
            return made
        given = unique(storages_in((args, kwargs)))
        mask.toggle(given)
        try:
            made = func(*args, **kwargs)
        finally:
            mask.toggle(unique([*given, *storages_in(made)]))
        return made

    def _between_margins(self, made: torch.Tensor, fill: float | None) -> torch.Tensor:
        used = (sum((n - 1) * s for n, s in zip(made.shape, made.stride(), strict=True)) + 1) * made.element_size()
        memory = torch.empty(used + 2 * MARGIN, dtype=torch.uint8, device=made.device)
        memory[:MARGIN].fill_(SENTINEL)
        memory[MARGIN + used :].fill_(SENTINEL)
        if fill is None:
            memory[MARGIN : MARGIN + used].fill_(self._poison or 0)
        inside = torch.empty(0, dtype=made.dtype, device=made.device)
        inside.set_(memory.untyped_storage(), MARGIN // made.element_size(), made.shape, made.stride())
        if fill is not None:
            inside.fill_(fill)
        if self.mask:
            self.mask.toggle([memory.untyped_storage()])
        self._kept.append((memory, MARGIN, used))
        return inside

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Round what is not the candidate's host code, a launch: only operators that compute are noted, for a launch has none."""
        self._paused += 1
        try:
            yield
        finally:
            self._paused -= 1

    def written_outside(self) -> bool:
        """Whether any sentinel was overwritten. Call it outside of the mode, after the device has finished."""
        with self.mask.open([m for m, _, _ in self._kept]) if self.mask else contextlib.nullcontext():
            return any(
                bool((m[:start] != SENTINEL).any()) or bool((m[start + used :] != SENTINEL).any())
                for m, start, used in self._kept
            )
