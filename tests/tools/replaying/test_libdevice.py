"""libdevice functions of interpreted kernels give what torch gives."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

CASES = {
    "libdevice.tanh(x)": "torch.tanh(x)",
    "libdevice.erf(x)": "torch.erf(x)",
    "libdevice.erfinv(x)": "torch.erfinv(x)",
    "libdevice.pow(x, y)": "torch.pow(x, y)",
    "libdevice.pow(x, 2.0)": "x * x",
    "libdevice.rint(x * 9)": "torch.round(x * 9)",
    "libdevice.round(x * 9)": "torch.floor(x * 9 + 0.5)",
    "libdevice.fast_expf(x)": "torch.exp(x)",
    "libdevice.lgamma(y)": "torch.lgamma(y)",
    "libdevice.atan2(x, y)": "torch.atan2(x, y)",
    "libdevice.fma(x, y, x)": "x * y + x",
    "libdevice.mul_rn(x, y)": "x * y",
    "libdevice.j1(x) + libdevice.y0(y)": "torch.special.bessel_j1(x) + torch.special.bessel_y0(y)",
    "libdevice.cyl_bessel_i0(x)": "torch.special.i0(x)",
    "libdevice.add_rn(x, libdevice.sub_rn(x, y))": "x + (x - y)",
    "tl.where(libdevice.isnan(x), 1.0, 2.0)": "torch.full_like(x, 2.0)",
    "cuda_libdevice.log1p(x)": "torch.log1p(x)",
    "libdevice.rsqrt(tl.sum(x, axis=0)) + x": "torch.rsqrt((x.sum() + 61 * 0.5)) + x",
}


HEAD = """
import os
os.environ["TRITON_INTERPRET"] = "1"
from kernelwright.tools.replaying.interpreter.patches.libdevice import provide_libdevice
import json, torch, triton, triton.language as tl
provide_libdevice()
from triton.language.extra import libdevice
from triton.language.extra.cuda import libdevice as cuda_libdevice
x, y, worst = torch.rand(67) * 0.9 + 0.05, torch.rand(67) + 0.5, []
"""

KERNEL = """
@triton.jit
def kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + o, mask=o < n, other=0.5)
    y = tl.load(y_ptr + o, mask=o < n, other=0.5)
    tl.store(out_ptr + o, CALL, mask=o < n)

out = torch.empty(67)
kernel[(1,)](x, y, out, 67, BLOCK=128)
expected = (EXPECTED).float()
worst.append(((out - expected).abs() / (1e-3 + expected.abs())).max().item())
"""


@pytest.fixture(scope="module")
def worst_errors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """Largest relative error of each case: one interpreter for all, since Triton reads kernels from a file and
    chooses at import.
    """
    script = tmp_path_factory.mktemp("libdevice") / "interpreted.py"
    kernels = (KERNEL.replace("CALL", call).replace("EXPECTED", CASES[call]) for call in CASES)
    script.write_text(HEAD + "".join(kernels) + "\nprint(json.dumps(worst))\n")
    done = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        timeout=500,
        env={"PYTHONPATH": "."},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(zip(CASES, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("call", CASES)
def test_an_interpreted_kernel_calls_libdevice_and_gets_what_torch_computes(
    call: str, worst_errors: dict[str, float]
) -> None:
    assert worst_errors[call] < 1e-5
