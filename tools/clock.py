"""The clock of record, on a GPU. The candidate's process times each call by device events; the judge's own clock bounds every block from outside,
a part of the timed outputs is compared, and the reference is timed before and after each block on the same memory.

Every call of a block has inputs with contents that were never seen before, so that nothing remembered is right.
"""

from __future__ import annotations

import random
import statistics
import time
from typing import Any

from tools import wire
from tools.buffers import Shared
from tools.checks import Checks
from tools.draws import Draw
from tools.gpus import Gpu, read_clocks, read_driver
from tools.ownwork import Rule, judge_share
from tools.physics import light
from tools.problem import Problem
from tools.results import Cheat, Failed, Failure, Fault, InfrastructureError, Number, ProfileResult, Timing
from tools.situation import Expected
from tools.timing import Block, Samples, ratio, settled, timing

FLUSH_BYTES = 1 << 28
"""Written before every timed call: over the L2 of every GPU so far."""
MOST_SETS, SET_BYTES, KEPT_BYTES = 32, 3 << 30, 8 << 30
LEAST_BLOCKS, LEAST_CALLS, MOST_CALLS, MOST_SECONDS = 3, 16, 240, 0.8
BLOCK_MS = 60.0
"""Of the candidate's own time in a block; one call where a call takes longer."""
LOOKED_AT = 0.25
"""Share of the blocks of one call whose output is compared; the candidate cannot know which."""
SLOWED = 1.3
"""A fill of the judge's own that takes so many times what it took at first: someone else is at work."""
BLOCK_SLACK, CALL_SLACK = 0.35, 0.02
"""Milliseconds of the wall clock, a block and a call, that are not the candidate's."""


class Clock:
    """One a GPU. Keeps its flush buffer and what a flush costs."""

    def __init__(self, device: str) -> None:
        import torch

        self.device = device
        self._flush = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device=device)
        self._flush_ms = self._time_flush()
        self._gpu = gpu_of(device)

    def _time_flush(self) -> float:
        import torch

        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for _ in range(5):
            self._flush.zero_()
        start.record()
        for _ in range(50):
            self._flush.zero_()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) / 50

    def refuse_a_shared_gpu(self) -> None:
        """Once the candidate is dead: its neighbour's slices are in the wall clock, and look like work outside of the stream. Raises InfrastructureError."""
        now = self._time_flush()
        if now > SLOWED * self._flush_ms:
            raise InfrastructureError(
                f"{self.device} is shared with another program (the judge's own fill takes {now:.3g} ms, {self._flush_ms:.3g} before): "
                "stop it, wait for it, or judge on another GPU"
            )

    def profile(self, problem: Problem, checks: Checks, rule: Rule) -> ProfileResult:
        """Times and profiles a candidate that passed every check. Raises Failed for an answer that is wrong while it is timed, or a forged clock."""
        begun = time.monotonic()
        checks.new_weights()
        first = self._block(checks, _open_sets(checks, 2))
        sets = _open_sets(checks, max(1, int(BLOCK_MS / first.claimed)))
        samples = self._samples(checks, sets)
        _within_wall(samples)
        kernels, share, busy_ms = _kernels(checks, sets)
        judge_share(checks.census, share, rule)
        candidate, eager = timing(samples.candidate), timing(samples.eager)
        candidate, notes = _bounded(candidate, busy_ms)
        speedup, low = ratio(eager, candidate)
        result = ProfileResult(
            device=_name(self.device), candidate=candidate, eager=eager, speedup=speedup, speedup_low=low, wall_ms=statistics.median(b.seen for b in samples.believed),
            own_share=share, gpu_kernels=kernels, peak_memory=max(b.allocated for b in samples.blocks), notes=tuple(notes), seconds=time.monotonic() - begun,
        )  # fmt: skip
        return light(problem, checks, result, self._gpu_now())

    def _samples(self, checks: Checks, sets: list[list[Shared]]) -> Samples:
        """The reference before and after each block; more blocks for as long as none can be believed."""
        samples, begin = Samples(eager=self._eager(checks, sets)), time.monotonic()
        while not _enough(samples, begin):
            samples.blocks.append(self._block(checks, sets, last=False))
            samples.eager += self._eager(checks, sets)
        samples.blocks.append(self._block(checks, sets))
        while samples.doubted:
            samples.blocks.append(self._block(checks, sets))
        return samples

    def _gpu_now(self) -> Gpu | None:
        """What the driver says of it, clocks as they are now."""
        return self._gpu.with_(clocks=read_clocks(self._gpu.uuid)) if self._gpu else None

    def _eager(self, checks: Checks, sets: list[list[Shared]]) -> list[float]:
        """The reference on the same memory, the same way."""
        import torch

        chosen = [_values(checks, s) for s in sets]
        events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in chosen]
        with torch.no_grad():
            for values, (start, end) in zip(chosen, events, strict=True):
                self._flush.zero_()
                start.record()
                kept = checks.model(*values)
                end.record()
        torch.cuda.synchronize()
        del kept
        return [a.elapsed_time(b) for a, b in events]

    def _block(self, checks: Checks, sets: list[list[Shared]], *, last: bool = True) -> Block:
        """One call on each set, in an order drawn anew; the last and a random share are compared (of blocks of one call, a random share and the last)."""
        import torch

        order = random.sample(range(len(sets)), len(sets))
        looked_at = (
            [order[-1], *({random.choice(order)} - {order[-1]})]
            if last or len(order) > 1 or random.random() < LOOKED_AT
            else []
        )
        drawn = _refill(checks, sets, set(looked_at))
        for place in checks.exchange.places:
            place.memory.fill_(0xFF)
        checks.exchange.talk.ask("arm", sets=order, rng=random.getrandbits(31))
        torch.cuda.synchronize()
        start = time.perf_counter()
        checks.exchange.talk.ask("time")
        wall = (time.perf_counter() - start) * 1e3
        reply = checks.exchange.talk.ask("told")
        milliseconds = _milliseconds(reply, len(order))
        for index in looked_at:
            checks.exchange.talk.ask("copy", call=order.index(index))
            _verify(checks, drawn[index])
        launches = {str(k): int(v) for k, v in reply["launches"].items()}
        _launches_as_checked(checks, launches, len(order))
        seen = (wall - BLOCK_SLACK) / len(order) - self._flush_ms - CALL_SLACK
        return Block(milliseconds, seen, int(reply["allocated"]))


def _enough(samples: Samples, begin: float) -> bool:
    spent, calls = time.monotonic() - begin, len(samples.candidate)
    if len(samples.blocks) < LEAST_BLOCKS:
        return False
    if calls >= MOST_CALLS or spent >= MOST_SECONDS:
        return True
    return calls >= LEAST_CALLS and settled(timing(samples.candidate)) and settled(timing(samples.eager))


def _open_sets(checks: Checks, wanted: int) -> list[list[Shared]]:
    """As many sets of inputs as are wanted and fit, mapped in the candidate's process."""
    import torch

    first = checks.first
    assert first is not None
    tensors = [v for v in first.inputs if isinstance(v, torch.Tensor)]
    inside = sum(t.nbytes for t in tensors) or 1
    outside = sum(o.nbytes for o in first.eager if isinstance(o, torch.Tensor)) or 1
    count = max(1, min(MOST_SETS, wanted, SET_BYTES // inside, KEPT_BYTES // outside))
    sets = [[checks.exchange.share(t, []) for t in tensors] for _ in range(count)]
    trees = []
    for shared in sets:
        specs = iter([place.spec for place in shared])
        trees.append(wire.describe(list(first.inputs), lambda _, specs=specs: next(specs)))  # type: ignore[misc]
    checks.exchange.talk.ask("inputs", sets=trees)
    return sets


def _values(checks: Checks, shared: list[Shared]) -> list[Any]:
    import torch

    assert checks.first is not None
    waiting = iter(shared)
    return [next(waiting).tensor if isinstance(v, torch.Tensor) else v for v in checks.first.inputs]


def _refill(checks: Checks, sets: list[list[Shared]], looked_at: set[int]) -> dict[int, Expected]:
    """Fresh contents for every set; for those that will be looked at, what should come of them."""
    import torch

    kept: dict[int, Expected] = {}
    for index, shared in enumerate(sets):
        if index in looked_at:
            kept[index] = checks.expect(Draw.OWN, checks.model, exact=False)
            inputs = kept[index].inputs
        else:
            inputs = checks.situation.reference.inputs(random.getrandbits(40))
        for place, value in zip(shared, (v for v in inputs if isinstance(v, torch.Tensor)), strict=True):
            place.tensor.copy_(value)
    return kept


def _milliseconds(reply: dict[str, Any], calls: int) -> list[float]:
    try:
        found = [float(v) for v in reply["ms"]]
    except (KeyError, TypeError, ValueError) as error:
        raise Failed(
            Failure(fault=Fault.CHEAT, cheat=Cheat.FORGERY, message="the times have not the form of times")
        ) from error
    if len(found) != calls or not all(0 < v < 1e7 for v in found):
        raise Failed(
            Failure(fault=Fault.CHEAT, cheat=Cheat.CLOCK, message="the device events tell times that cannot be")
        )
    return found


def _verify(checks: Checks, expected: Expected) -> None:
    """Raises Failed for a timed output that is wrong."""
    try:
        checks.timed(expected)
    except Failed as failed:
        message = f"right when it was checked, wrong when it was timed (an answer remembered, or work skipped): {failed.failure.message}"
        raise Failed(
            Failure(fault=Fault.CHEAT, cheat=Cheat.CACHE, message=message, mismatch=failed.failure.mismatch)
        ) from failed


def _within_wall(samples: Samples) -> None:
    """Events that claim far less than the judge's clock saw pass, in every block: a busy machine slows some blocks, a cheat all. Raises Failed."""
    if not samples.believed:
        best = max(samples.blocks, key=lambda block: block.claimed / block.seen)
        message = f"the events claim {best.claimed:.4g} ms a call, the judge's clock saw at least {best.seen:.4g} ms: work outside the timed stream"
        raise Failed(Failure(fault=Fault.CHEAT, cheat=Cheat.CLOCK, message=message))


def _launches_as_checked(checks: Checks, launches: dict[str, int], calls: int) -> None:
    """A timed call launches what every checked call launched."""
    for name, count in (checks.steady or {}).items():
        if launches.get(name, 0) < count * calls:
            raise Failed(
                Failure(
                    fault=Fault.CHEAT,
                    cheat=Cheat.CACHE,
                    message=f"{name} is launched {count} times in a checked call, {launches.get(name, 0) / calls:.2g} times in a timed one",
                )
            )


def _kernels(checks: Checks, sets: list[list[Shared]]) -> tuple[dict[str, Number], float | None, float]:
    """Milliseconds a call by kernel name, own share of the GPU's time, milliseconds a call in all. From CUPTI, in the candidate's process."""
    chosen = list(range(min(len(sets), 8)))
    _refill(checks, sets, set())
    reply = checks.exchange.talk.ask("profile", sets=chosen)
    own = set(checks.census.launches)
    try:
        found = {
            str(name)[:160]: (float(v["ms"]) / len(chosen), float(v["count"])) for name, v in reply["kernels"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Failed(
            Failure(fault=Fault.CHEAT, cheat=Cheat.FORGERY, message="the profile has not the form of one")
        ) from error
    total = sum(ms for ms, _ in found.values())
    own_ms = sum(ms for name, (ms, _) in found.items() if name in own)
    checks.note_foreign({name: int(count) for name, (_, count) in found.items() if name not in own})
    return (
        {k: ms for k, (ms, _) in sorted(found.items(), key=lambda kv: -kv[1][0])[:20]},
        own_ms / total if total else None,
        total,
    )


def _bounded(candidate: Timing, busy_ms: float) -> tuple[Timing, list[str]]:
    """Where the GPU was busy for longer than the events say, that time stands."""
    if busy_ms <= 1.25 * candidate.median + 0.005:
        return candidate, []
    factor = busy_ms / candidate.median
    note = f"the events say {candidate.median:.4g} ms, the profiler {busy_ms:.4g} ms of GPU work a call: the profiler's time stands"
    return candidate.with_(
        **{k: getattr(candidate, k) * factor for k in ("median", "low", "high", "mean", "minimum")}
    ), [note]


def _name(device: str) -> str:
    import torch

    return torch.cuda.get_device_name(device)


def gpu_of(device: str) -> Gpu | None:
    index = int(device.partition(":")[2] or 0)
    return next((g for g in read_driver().gpus if g.index == index), None)
