"""The clock on a GPU: a call against itself and against triton.testing.do_bench; nothing on the device remembers an
earlier call while it is timed.
"""

from __future__ import annotations

import contextlib
import statistics
from typing import Any

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

from kernelwright.tools.replaying.allocations import Allocations  # noqa: E402
from kernelwright.tools.replaying.gpu.timing import TimedTrace  # noqa: E402
from kernelwright.tools.timing.reference_clock import ReferenceClock  # noqa: E402
from kernelwright.tools.trace.trace import Choice, Launch  # noqa: E402

pytestmark = pytest.mark.gpu
SLOW = 20_000
"""Turns of a loop that takes a good part of a millisecond."""


@triton.jit
def copied(x, out, n, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(out + i, tl.load(x + i, mask=i < n), mask=i < n)


@triton.jit
def remembering(flag, out, turns):
    """Slow, where the flag does not say that the work is done."""
    known = tl.load(flag)
    value = 0.0
    if known != 1:
        for i in range(turns):
            value = value * 0.5 + i
        tl.store(out, value)
    tl.store(flag, 1)


def timing(call: Any, own: Any = (), steps: Any = ()) -> TimedTrace:
    """Of a call that takes the inputs, the allocations, and the alternative of a choice."""

    def run(inputs: Any, *, allocations: Any, choices: Any, around: Any = None) -> Any:
        enter = around or (lambda step: contextlib.nullcontext())
        return call(inputs, allocations, choices, enter)

    return TimedTrace(
        run, steps, lambda: list(own), list, lambda step: (step.kernel, tuple(step.grid))
    )


def ask(watch: TimedTrace, what: str, **message: Any) -> dict[str, Any]:
    return watch.answer({"do": f"clock_{what}", **message}, lambda m: m["sets"])


def measured(
    watch: TimedTrace, sets: Any, calls: int = 12, **options: Any
) -> tuple[float, dict[str, Any]]:
    """The median in milliseconds, and what opening said."""
    opened = ask(watch, "open", sets=sets, **options)
    ask(watch, "block", order=[0, 0])
    told = ask(watch, "block", order=[i % len(sets) for i in range(calls)])
    assert told["block_ms"] >= sum(told["ms"])
    return statistics.median(told["ms"]), opened


def copy_call(n: int) -> Any:
    def call(inputs: Any, allocations: Any, choices: Any, enter: Any) -> Any:
        out = allocations.fresh(torch.empty_like(inputs[0]), None)
        copied[(triton.cdiv(n, 1024),)](inputs[0], out, n, block=1024)
        return [out]

    return call


@pytest.mark.parametrize("n", [1 << 16, 1 << 24, 1 << 27])
def test_a_call_against_itself_and_against_do_bench(n):
    sets = [[torch.randn(n, device="cuda")] for _ in range(2)]
    call = copy_call(n)
    watch = timing(call)
    opened = ask(watch, "open", sets=sets)
    assert opened["captured"], opened["why"]
    reference = ReferenceClock(lambda x: call([x], Allocations(None, 0), {}, None), sets)
    reference.open()
    mine, theirs = [], []
    for _ in range(6):
        mine += ask(watch, "block", order=[0, 1] * 5)["ms"]
        theirs += reference.block(10)
    found, again = statistics.median(mine), statistics.median(theirs)
    print(f"n={n}: {found:.5f} ms, again {again:.5f}, ratio {found / again:.4f}")
    assert found == pytest.approx(again, rel=0.01 if found > 0.05 else 0.03)
    if found > 0.05:
        out = torch.empty(n, device="cuda")
        bench = triton.testing.do_bench(
            lambda: copied[(triton.cdiv(n, 1024),)](sets[0][0], out, n, block=1024),
            warmup=20,
            rep=60,
            return_mode="median",
        )
        print(f"do_bench {bench:.5f}, ratio {found / bench:.4f}")
        assert found == pytest.approx(bench, rel=0.03)


@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize("where", ["set-up", "workspace"])
def test_memory_that_says_that_the_work_is_done_is_put_back(where, graphs):
    kept = torch.zeros(1, dtype=torch.int32, device="cuda")
    x = torch.zeros(1, device="cuda")

    def call(inputs: Any, allocations: Any, choices: Any, enter: Any) -> Any:
        fresh = allocations.fresh(torch.empty(1 << 20, dtype=torch.int32, device="cuda"), None)
        out = allocations.fresh(torch.empty(1, device="cuda"), None)
        remembering[(1,)](kept if where == "set-up" else fresh, out, SLOW)
        return [out]

    def forgetful(inputs: Any, allocations: Any, choices: Any, enter: Any) -> Any:
        out = allocations.fresh(torch.empty(1, device="cuda"), None)
        remembering[(1,)](torch.zeros(1, dtype=torch.int32, device="cuda"), out, SLOW)
        return [out]

    honest, _ = measured(timing(forgetful), [[x]], graphs=graphs)
    found, opened = measured(timing(call, own=[kept]), [[x]], graphs=graphs)
    assert opened["captured"] is graphs
    assert found > 0.8 * honest


def test_a_call_that_waits_for_the_device_is_timed_without_a_graph():
    def call(inputs: Any, allocations: Any, choices: Any, enter: Any) -> Any:
        out = copy_call(1 << 20)(inputs, allocations, choices, enter)
        out[0][0].item()
        return out

    found, opened = measured(timing(call), [[torch.randn(1 << 20, device="cuda")]])
    assert not opened["captured"]
    assert opened["why"]
    assert 0 < found < 10
    _, opened = measured(timing(copy_call(1 << 20)), [[torch.randn(1 << 20, device="cuda")]])
    assert opened["captured"], "a capture that failed leaves the next one alone"


def test_the_fastest_alternative_is_ranked_first_and_what_does_not_fit_is_left_out():
    from kernelwright.tools.faults import Failed, Failure, Fault

    turns = {1: SLOW, 2: SLOW // 4, 3: 0}
    alternatives = tuple((Launch(kernel="k", grid=(n, 1, 1)),) for n in turns)
    choice = Choice(name="c", alternatives=alternatives)

    def call(inputs: Any, allocations: Any, choices: Any, enter: Any) -> Any:
        out = allocations.fresh(torch.empty(1, device="cuda"), None)
        [step] = choice.alternatives[choices.get(0, 0)]
        if step.grid[0] == 3:
            raise Failed(Failure(fault=Fault.RESOURCES, message="too much"))
        with enter(step):
            remembering[(1,)](
                torch.zeros(1, dtype=torch.int32, device="cuda"), out, turns[step.grid[0]]
            )
        return [out]

    told = ask(timing(call, steps=(choice,)), "choose", seconds=5.0, sets=[[torch.zeros(1)]])
    assert told["ranked"] == [[0, [1, 0]]], told["ms"]


def test_timed_outputs_are_copied_out_and_launches_told_in_order():
    sets = [[torch.randn(1 << 20, device="cuda")] for _ in range(2)]
    first, second = (Launch(kernel=n, grid=(1024, 1, 1)) for n in ("first", "second"))

    def call(inputs: Any, allocations: Any, choices: Any, enter: Any) -> Any:
        with enter(first):
            [half] = copy_call(1 << 20)(inputs, allocations, choices, enter)
        with enter(second):
            return copy_call(1 << 20)([half], allocations, choices, enter)

    watch = timing(call)
    measured(watch, sets)
    place = torch.zeros(1 << 20, device="cuda")
    told = ask(watch, "check", index=1, sets=[[place]])
    assert told == {"copied": [True], "disturbed": False}
    assert torch.equal(place, sets[1][0])
    rows = ask(watch, "launches", index=1)["launches"]
    assert [r["name"] for r in rows] == ["first", "second"]
    assert all(0 < r["ms"] < 0.1 for r in rows)
    ask(watch, "close")


def test_the_judges_inputs_are_not_what_is_timed():
    sets = [[torch.zeros(1 << 20, device="cuda")]]
    seen = []

    def call(inputs: Any, allocations: Any, choices: Any, enter: Any) -> Any:
        seen.append(inputs[0].data_ptr())
        return [inputs[0].add_(1.0)]

    watch = timing(call)
    measured(watch, sets)
    place = torch.zeros(1 << 20, device="cuda")
    ask(watch, "check", index=0, sets=[[place]])
    assert not bool(sets[0][0].any())
    assert bool((place == 1.0).all()), "restored before every call"
    assert sets[0][0].data_ptr() not in seen
