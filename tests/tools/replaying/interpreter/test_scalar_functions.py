"""Functions of single numbers that branch and loop, and counts of bits, give what Python gives for each number."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

SCRIPT = """
import os
os.environ["TRITON_INTERPRET"] = "1"
import json, torch, triton, triton.language as tl
from kernelwright.tools.replaying.interpreter.patches import libdevice as interpreted
from kernelwright.tools.replaying.interpreter.patches import repairs, scalar_functions
from kernelwright.tools.replaying.interpreter.open_choices import tree_reductions
interpreted.provide_libdevice()
for repair in (*repairs.REPAIRS, repairs.patch_permanently):
    repair()
tree_reductions.install()
scalar_functions.install()
from triton.language.extra import libdevice

@triton.jit
def steps_to_one(x, y):
    count = 0
    while x > 1:
        if x % 2 == 0:
            x = x // 2
        else:
            x = 3 * x + 1
        count += 1
    return count, count * y

@triton.jit
def turned_round(a, b):
    return b, a

@triton.jit
def mapped(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    number = tl.load(x + at)
    count, product = tl.map_elementwise(steps_to_one, number, number + 1)
    (pairs,) = tl.map_elementwise(turned_round, number, pack=2)
    tl.store(out + at, count)
    tl.store(out + BLOCK + at, product)
    tl.store(out + 2 * BLOCK + at, pairs)

@triton.jit
def bits(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    number = tl.load(x + at)
    tl.store(out + at, libdevice.popc(number))
    tl.store(out + BLOCK + at, libdevice.clz(number))
    tl.store(out + 2 * BLOCK + at, libdevice.ffs(number))
    tl.store(out + 3 * BLOCK + at, libdevice.brev(number))

def run(kernel, numbers, dtype, rows):
    out = torch.zeros(rows, len(numbers), dtype=dtype)
    kernel[(1,)](torch.tensor(numbers, dtype=dtype), out, BLOCK=len(numbers))
    return out.tolist()

print(json.dumps({
    "mapped": run(mapped, list(range(1, 33)), torch.int32, 3),
    "32": run(bits, NUMBERS_32, torch.int32, 4),
    "64": run(bits, NUMBERS_64, torch.int64, 4),
}))
"""
NUMBERS = {w: [0, 1, -1, 5, -(1 << (w - 1)), 1 << (w - 2), 12345, -7] for w in (32, 64)}


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> dict[str, list[list[int]]]:
    script = tmp_path_factory.mktemp("scalars") / "interpreted.py"
    script.write_text(
        SCRIPT.replace("NUMBERS_32", str(NUMBERS[32])).replace("NUMBERS_64", str(NUMBERS[64]))
    )
    done = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        timeout=500,
        env={"PYTHONPATH": "."},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def steps_to_one(number: int) -> int:
    count = 0
    while number > 1:
        number = number // 2 if number % 2 == 0 else 3 * number + 1
        count += 1
    return count


def signed(value: int, width: int) -> int:
    return value - (1 << width) if value >> (width - 1) else value


def test_each_lane_takes_its_own_way_through_a_function(results):
    counts = [steps_to_one(n) for n in range(1, 33)]
    assert results["mapped"][0] == counts
    assert results["mapped"][1] == [count * (n + 1) for n, count in enumerate(counts, 1)]


def test_lanes_side_by_side_are_given_together(results):
    assert results["mapped"][2] == [n + 1 if n % 2 else n - 1 for n in range(1, 33)]


@pytest.mark.parametrize("width", [32, 64])
def test_bits_are_counted_found_and_reversed(results, width):
    words = [n & ((1 << width) - 1) for n in NUMBERS[width]]
    ones, zeros_before, first, backwards = results[str(width)]
    assert ones == [word.bit_count() for word in words]
    assert zeros_before == [width - word.bit_length() for word in words]
    assert first == [(word & -word).bit_length() for word in words]
    assert backwards == [signed(int(f"{word:0{width}b}"[::-1], 2), width) for word in words]
