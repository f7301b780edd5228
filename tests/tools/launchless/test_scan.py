"""Running sums and products of interpreted kernels are rounded once a number, as exact as a GPU's tree."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import os
os.environ["TRITON_INTERPRET"] = "1"
import torch, triton, triton.language as tl
from kernelwright.tools.replaying.interpreter import repairs as interpreter
if {repaired}:
    interpreter.repair_scan()

@triton.jit
def scan(x_ptr, out_ptr, CALL: tl.constexpr, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + o)
    tl.store(out_ptr + o, tl.cumsum(x, axis=0) if CALL == 0 else tl.cumprod(x, axis=0))

worst = 0.0
for call, x, exact in ((0, torch.full((8192,), 0.1), torch.cumsum), (1, torch.full((8192,), 1.0001), torch.cumprod)):
    out = torch.empty_like(x)
    scan[(1,)](x, out, CALL=call, BLOCK=8192)
    r = exact(x.double(), 0)
    worst = max(worst, ((out - r).abs() / r).max().item())
whole = torch.empty(64, dtype=torch.int32)
scan[(1,)](torch.full((64,), 3, dtype=torch.int32), whole, CALL=0, BLOCK=64)
assert whole.tolist() == list(range(3, 195, 3))
print(worst)
"""


def _worst(folder: Path, repaired: bool) -> float:
    """Largest relative error against float64, over thousands of equal numbers.

    A process of its own: Triton chooses at import.
    """
    script = folder / f"scan_{repaired}.py"
    script.write_text(SCRIPT.format(repaired=repaired))
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parents[3])},
    )  # fmt: skip
    return float(done.stdout)


def test_a_scan_over_equal_numbers_is_rounded_once_a_number(tmp_path):
    assert _worst(tmp_path, repaired=True) < 1e-7
    assert _worst(tmp_path, repaired=False) > 1e-5
