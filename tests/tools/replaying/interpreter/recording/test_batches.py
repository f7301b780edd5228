"""Programs that are replayed many at a time: as if each had run alone, and one after the other where they meet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kernelwright.tools.trace.trace import Trace

INSTRUMENTED = Path(__file__).with_name("launched_in_batches.py")
POINTERS = {"x": "*fp32", "y": "*fp32"}
COUNTED = POINTERS | {"n": "i32"}


APART = [
    "softmax",
    "product",
    "places",
    "combines",
    "loops",
    "decides",
    "begins_at_its_own",
    "in_place",
    "half",
    "scatters",
]
"""Kernels whose programs do not meet in memory."""


@pytest.fixture(scope="module")
def launched() -> dict[str, dict[str, object]]:
    """What launched_in_batches.py says of each of its kernels."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    told = subprocess.run(
        [sys.executable, str(INSTRUMENTED)], env=environment, capture_output=True, text=True
    )
    assert told.returncode == 0, told.stderr[-2000:]
    return json.loads(told.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("name", APART)
def test_what_many_programs_give_at_once_is_what_each_gives_alone(launched, name):
    assert launched[name]["equal"]


@pytest.mark.parametrize("name", APART)
def test_programs_that_do_not_meet_run_many_at_a_time(launched, name):
    assert launched[name]["alone"] < launched[name]["programs"] // 4


@pytest.mark.parametrize("name", ["softmax", "product", "places", "combines", "loops", "half"])
def test_each_step_is_done_for_all_programs_at_once(launched, name):
    assert launched[name]["steps_one_by_one"] == 0


@pytest.mark.parametrize(
    "name", ["adds_atomically", "writes_the_same", "reads_a_neighbour", "swaps_in_place"]
)
def test_programs_that_meet_run_one_after_the_other(launched, name):
    assert launched[name]["apart"]


def test_programs_that_run_in_turns_are_replayed_from_the_record(launched):
    assert launched["hands_on"]["equal"]
    assert launched["hands_on"]["interpreted"] < launched["hands_on"]["programs"] // 4


@pytest.mark.parametrize(
    "text",
    [
        """
        def last(x, y, n):
            i = tl.program_id(0)
            tl.store(y + i // 4, tl.load(x + i))
        """,
        """
        def behind(x, y, n):
            i = tl.program_id(0)
            before = tl.load(y + i, mask=i > 0, other=0.0)
            tl.store(y + i + 1, before + tl.load(x + i), mask=i + 1 < n)
        """,
    ],
    ids=["writes_the_same", "reads_what_another_wrote"],
)
def test_the_order_of_programs_decides_where_they_meet(bench, write, text):
    kernel = write.kernel(text, COUNTED)
    steps = (write.empty(1, 64), write.launch(kernel[0].name, 64, x=write.t(0), y=write.t(1), n=64))
    bench.open(
        write.traced(Trace(inputs=(write.t(0),), first=steps, first_outputs=write.t(1)), kernel)
    )
    results = set()
    for seed in range(8):
        bench.call([torch.arange(64.0)], [torch.zeros(64)], shuffle=seed, poison=0)
        results.add(tuple(bench.got[0].tolist()))
    assert len(results) > 1


def test_what_was_written_before_a_launch_was_taken_back_is_not_seen(bench, write):
    text = """
    def add(x, y, n):
        i = tl.program_id(0)
        tl.store(y + i, tl.load(y + i) + tl.load(x + i))
        tl.atomic_add(y, 0.0)
    """
    kernel = write.kernel(text, COUNTED)
    steps = (write.empty(1, 64), write.launch("add", 64, x=write.t(0), y=write.t(1), n=64))
    bench.open(
        write.traced(Trace(inputs=(write.t(0),), first=steps, first_outputs=write.t(1)), kernel)
    )
    for seed in range(3):
        bench.call([torch.ones(64)], [torch.zeros(64)], shuffle=seed, poison=0)
        assert bench.got[0][1:].tolist() == [1.0] * 63
