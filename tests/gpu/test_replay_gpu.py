"""Kernels launched by the driver do what Triton's own launcher does with the same binary; what goes wrong on the
device has a name.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

from kernelwright.tools.faults import Failed, Fault  # noqa: E402
from kernelwright.tools.replaying.gpu.launching import Binaries, synchronize  # noqa: E402

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).resolve().parents[2]
N = 1000


@triton.jit
def scalars(out, flag, small, large, unsigned, real, n: tl.constexpr):
    i = tl.arange(0, n)
    value = (
        tl.where(flag, small.to(tl.float64), large.to(tl.float64)) + unsigned.to(tl.float64) + real
    )
    tl.store(out + i, value)


@triton.jit
def halves(out, a: tl.float16, b: tl.bfloat16, c: tl.float64):
    tl.store(out, a.to(tl.float64))
    tl.store(out + 1, b.to(tl.float64))
    tl.store(out + 2, c.to(tl.float64))


@triton.jit
def added(x, y, out, n, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    value = tl.load(x + i, mask=i < n)
    if y is not None:
        value += tl.load(y + i, mask=i < n)
    tl.store(out + i, value, mask=i < n)


@triton.jit
def added_tuple(pair, out, n, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(
        out + i, tl.load(pair[0] + i, mask=i < n) + tl.load(pair[1] + i, mask=i < n), mask=i < n
    )


@triton.jit
def multiplied(a, b, c, k, m: tl.constexpr, n: tl.constexpr, block: tl.constexpr):
    rows, columns, inner = tl.arange(0, m), tl.arange(0, n), tl.arange(0, block)
    sums = tl.zeros((m, n), dtype=tl.float32)
    for begin in range(0, k, block):
        left = tl.load(a + rows[:, None] * k + begin + inner[None, :])
        right = tl.load(b + (begin + inner)[:, None] * n + columns[None, :])
        sums = tl.dot(left, right, sums)
    tl.store(c + rows[:, None] * n + columns[None, :], sums)


@triton.jit
def copied_by_descriptor(source, target, block: tl.constexpr):
    at = tl.program_id(0) * block
    target.store([at, 0], source.load([at, 0]))


@triton.jit
def copied_by_device_descriptor(source, target, rows, columns, block: tl.constexpr):
    a = tl.make_tensor_descriptor(source, [rows, columns], [columns, 1], [block, block])
    b = tl.make_tensor_descriptor(target, [rows, columns], [columns, 1], [block, block])
    at = [tl.program_id(0) * block, tl.program_id(1) * block]
    b.store(at, a.load(at))


def compiled(
    fn: Any, args: tuple[Any, ...], grid: tuple[int, ...] = (1,), **named: Any
) -> tuple[Any, dict[str, Any]]:
    """The binary that Triton makes for these arguments, and what the replayer is given of it."""
    kernel = fn.warmup(*args, grid=grid, **named)
    metadata = kernel.metadata._asdict()
    entry = {
        "binary": kernel.asm["cubin"],
        "metadata": metadata,
        "signature": dict(kernel.src.signature),
    }
    return kernel, entry


def launched(
    fn: Any, args: tuple[Any, ...], grid: tuple[int, ...] = (1,), **named: Any
) -> Binaries:
    _, entry = compiled(fn, args, grid, **named)
    binaries = Binaries({"k": entry})
    assert binaries.load() == {}
    binaries.launch("k", grid, dict(zip(fn.arg_names, args, strict=False)))
    synchronize()
    return binaries


def test_numbers_of_every_width_arrive():
    out, wanted = (torch.zeros(4, dtype=torch.float64, device="cuda") for _ in range(2))
    for flag, small, large in ((True, -7, 1 << 40), (False, -7, -(1 << 40))):
        args = (out, flag, small, large, (1 << 63) + 5, 1.1)
        launched(scalars, args, n=4)
        scalars[(1,)](wanted, *args[1:], n=4)
        assert torch.equal(out, wanted)


def test_floats_of_every_width_arrive():
    out, wanted = (torch.zeros(3, dtype=torch.float64, device="cuda") for _ in range(2))
    launched(halves, (out, 1 / 3, 2 / 3, 1 / 7))
    halves[(1,)](wanted, 1 / 3, 2 / 3, 1 / 7)
    assert torch.equal(out, wanted)


@pytest.mark.parametrize("second", [True, False])
def test_a_pointer_may_be_none(second):
    x, y = torch.randn(N, device="cuda"), torch.randn(N, device="cuda") if second else None
    out = torch.empty(N, device="cuda")
    launched(added, (x, y, out, N), (triton.cdiv(N, 128),), block=128)
    assert torch.equal(out, x + y if second else x)


def test_a_tuple_of_pointers_is_flattened():
    x, y, out = (torch.randn(N, device="cuda") for _ in range(3))
    launched(added_tuple, ((x, y), out, N), (triton.cdiv(N, 128),), block=128)
    assert torch.equal(out, x + y)


@pytest.mark.parametrize(
    "options", [{}, {"num_ctas": 2}, {"launch_cooperative_grid": True}, {"launch_pdl": True}]
)
def test_clusters_cooperative_and_dependent_launches(options):
    x, y, out = (torch.randn(N, device="cuda") for _ in range(3))
    launched(added, (x, y, out, N), (triton.cdiv(N, 256),), block=256, **options)
    assert torch.equal(out, x + y)


def test_more_shared_memory_than_a_kernel_has_by_itself():
    a, b = (torch.randn(s, device="cuda", dtype=torch.float16) for s in ((128, 512), (512, 128)))
    out = torch.empty(128, 128, device="cuda")
    _, entry = compiled(multiplied, (a, b, out, 512), m=128, n=128, block=64, num_stages=4)
    assert entry["metadata"]["shared"] > 48 << 10
    launched(multiplied, (a, b, out, 512), m=128, n=128, block=64, num_stages=4)
    torch.testing.assert_close(out, a.float() @ b.float(), atol=1e-2, rtol=1e-2)


def test_more_shared_memory_than_the_gpu_has_is_named():
    x, out = torch.randn(N, device="cuda"), torch.empty(N, device="cuda")
    _, entry = compiled(added, (x, x, out, N), block=128)
    failures = Binaries(
        {"k": {**entry, "metadata": {**entry["metadata"], "shared": 1 << 20}}}
    ).load()
    assert failures["k"].fault is Fault.RESOURCES
    assert "1048576" in failures["k"].message


def test_a_descriptor_made_on_the_host():
    from triton.tools.tensor_descriptor import TensorDescriptor

    from kernelwright.tools.trace.reinterpreted import Descriptor

    source, target = torch.randn(64, 64, device="cuda"), torch.zeros(64, 64, device="cuda")
    own = tuple(
        TensorDescriptor(t, list(t.shape), list(t.stride()), [16, 64]) for t in (source, target)
    )
    _, entry = compiled(copied_by_descriptor, own, block=16)
    binaries = Binaries({"k": entry})
    binaries.load()
    given = [
        Descriptor(t, tuple(t.shape), tuple(t.stride()), (16, 64), "zero") for t in (source, target)
    ]
    binaries.launch("k", (4, 1, 1), {"source": given[0], "target": given[1]})
    synchronize()
    assert torch.equal(source, target)


def test_descriptors_made_on_the_device_get_their_scratch_memory():
    source, target = torch.randn(64, 128, device="cuda"), torch.zeros(64, 128, device="cuda")
    _, entry = compiled(copied_by_device_descriptor, (source, target, 64, 128), block=32)
    assert entry["metadata"]["global_scratch_size"] > 0
    launched(copied_by_device_descriptor, (source, target, 64, 128), (2, 4), block=32)
    assert torch.equal(source, target)


@pytest.mark.parametrize("grid", [(1 << 31, 1, 1), (1, 65536, 1), (-1, 1, 1)])
def test_a_grid_that_cuda_does_not_take_is_a_launch_failure(grid):
    x, out = torch.randn(N, device="cuda"), torch.empty(N, device="cuda")
    binaries = launched(added, (x, x, out, N), block=128)
    with pytest.raises(Failed) as failed:
        binaries.launch("k", grid, {"x": x, "y": x, "out": out, "n": N})
    assert failed.value.failure.fault is Fault.LAUNCH


def test_an_empty_grid_launches_nothing():
    x, out = torch.randn(N, device="cuda"), torch.zeros(N, device="cuda")
    binaries = launched(added, (x, x, out, N), (0, 1, 1), block=128)
    binaries.launch("k", (4, 0, 1), {"x": x, "y": x, "out": out, "n": N})
    synchronize()
    assert not bool(out.any())


def test_arguments_that_do_not_fit_are_a_launch_failure():
    x, out = torch.randn(N, device="cuda"), torch.empty(N, device="cuda")
    binaries = launched(added, (x, x, out, N), block=128)
    for wrong in (
        {"x": x},
        {"x": x.cpu(), "y": x, "out": out, "n": N},
        {"x": x, "y": x, "out": out, "n": 1.5},
    ):
        with pytest.raises(Failed) as failed:
            binaries.launch("k", (1, 1, 1), wrong)
        assert failed.value.failure.fault is Fault.LAUNCH


DEATH = textwrap.dedent("""
    import torch, triton, triton.language as tl
    from kernelwright.tools.replaying.gpu.launching import Binaries, failure_of, synchronize
    @triton.jit
    def wild(x, far):
        tl.store(x + far, 1.0)
    x = torch.zeros(4, device="cuda")
    kernel = wild.warmup(x, 1 << 45, grid=(1,))
    signature = dict(kernel.src.signature)
    entry = {"binary": kernel.asm["cubin"], "metadata": kernel.metadata._asdict(), "signature": signature}
    binaries = Binaries({"k": entry}); binaries.load()
    try:
        binaries.launch("k", (1, 1, 1), {"x": x, "far": 1 << 45})
        synchronize()
    except BaseException as error:
        failure, dead = failure_of(error)
        print(failure.fault.value, dead)
    try:
        torch.zeros(4, device="cuda").sum().item()
    except BaseException as error:
        print(failure_of(error)[0].fault.value, failure_of(error)[1])
""")


def test_an_illegal_address_is_out_of_bounds_and_the_process_is_dead(tmp_path):
    script = tmp_path / "death.py"
    script.write_text(DEATH)
    command = [sys.executable, str(script)]
    import os

    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    said = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert said.stdout.split() == ["out_of_bounds", "True", "out_of_bounds", "True"], (
        said.stdout + said.stderr
    )
