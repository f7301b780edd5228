"""Reading compiled kernels without a disassembler: held to the bundled cuobjdump."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kernelwright.tools.compiling.instructions import read_instructions
from kernelwright.tools.hardware.binary import code_hash, read_cubin
from kernelwright.tools.hardware.targets import TARGETS

KERNEL = """
import sys
import triton
import triton.language as tl


@triton.jit
def spilling(a, b, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]
    x = tl.load(a + m)
    tl.store(b + m, x / tl.sum(x, 1)[:, None] + tl.sum(x, 0)[None, :] * tl.max(x, 1)[:, None])


if __name__ == "__main__":
    from triton.backends.compiler import GPUTarget

    arch, size, registers, folder = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    signature = {"a": "*fp32", "b": "*fp32", "BM": "constexpr", "BN": "constexpr"}
    source = triton.compiler.ASTSource(spilling, signature, {"BM": 64, "BN": size})
    options = {"num_warps": 4, "maxnreg": registers}
    made = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)
    open(folder + "/k.cubin", "wb").write(made.asm["cubin"])
    open(folder + "/k.ptx", "w").write(made.asm["ptx"])
"""


def build(folder: Path, arch: int, size: int, registers: int = 64) -> bytes:
    """The kernel over 64 rows of `size` columns, compiled for sm_`arch` with at most so many registers a thread."""
    folder.mkdir(exist_ok=True)
    (folder / "spilling.py").write_text(KERNEL)
    environment = {
        "TRITON_CACHE_DIR": str(folder / "cache"),
        "TRITON_DEFAULT_FP_FUSION": "1",
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    }
    command = [
        sys.executable,
        str(folder / "spilling.py"),
        str(arch),
        str(size),
        str(registers),
        str(folder),
    ]
    subprocess.run(command, check=True, env=environment, timeout=500, cwd=folder)
    return (folder / "k.cubin").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("target", [t for t in TARGETS if t.startswith("sm_")])
def test_registers_stack_and_shared_memory_are_what_cuobjdump_says(
    target: str, tmp_path: Path
) -> None:
    import triton

    data = build(tmp_path, int(target.removeprefix("sm_")), 64, registers=32)
    usage = read_cubin(data, "spilling")
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    said = subprocess.run(
        [tool, "--dump-resource-usage", tmp_path / "k.cubin"], capture_output=True, text=True
    ).stdout
    found = {k: int(v) for k, v in re.findall(r"(REG|STACK|SHARED|LOCAL):(\d+)", said)}
    assert usage.registers == found["REG"]
    assert usage.stack == found["STACK"]
    assert usage.shared == found["SHARED"]
    assert usage.spills == max(found["LOCAL"], found["STACK"]) > 0


def test_the_hash_of_the_code_does_not_know_where_the_source_lay(tmp_path: Path) -> None:
    here, there = build(tmp_path / "here", 90, 16), build(tmp_path / "elsewhere", 90, 16)
    assert here != there
    assert code_hash(here) == code_hash(there)
    assert code_hash(here) != code_hash(build(tmp_path / "other", 90, 32))


def test_what_is_no_binary_is_refused() -> None:
    with pytest.raises(ValueError, match="ELF"):
        read_cubin(b"not an ELF file at all", "k")


@pytest.mark.parametrize(
    ("ptx", "core", "types"),
    [
        (
            "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%f1}, %rd1, %rd2, p, 1, 1, 0, 1;",
            "wgmma",
            ("bf16",),
        ),
        ("wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e5m2 {%f1};", "wgmma", ("e4m3", "e5m2")),
        (
            "  mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1}, {%r1}, {%r2}, {%f1};",
            "mma",
            ("tf32",),
        ),
        ("  mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%r1};", "mma", ("s8",)),
        ("  mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%d1};", "mma", ("f64",)),
        ("  @%p1 mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%r1};", "mma", ("f16",)),
        ("  fma.rn.f32 %f1, %f2, %f3, %f1;", "", ()),
    ],
)
def test_operand_types_are_read_from_the_instruction(
    ptx: str, core: str, types: tuple[str, ...]
) -> None:
    found = read_instructions({"ptx": ptx})
    assert (found.tensor_core, found.mma_types) == (core, types)


@pytest.mark.parametrize(
    ("ptx", "bits"),
    [
        ("ld.global.v4.b32 { %r1, %r2, %r3, %r4 }, [ %rd1 + 0 ];", 128),
        ("ld.global.L1::evict_last.v2.b64 { %rd1, %rd2 }, [ %rd3 ];", 128),
        ("ld.global.b32 { %r1 }, [ %rd1 ];", 32),
        ("ld.global.v8.b32 { %r1 }, [ %rd1 ];", 256),
        ("cp.async.cg.shared.global [ %r1 + 0 ], [ %rd1 + 0 ], 0x10, %r2;", 128),
        ("cp.async.ca.shared.global [ %r1 ], [ %rd1 ], 4, 4;", 32),
        ("ld.shared.v4.b32 { %r1 }, [ %r2 ];", None),
    ],
)
def test_the_widest_global_load_is_found(ptx: str, bits: int | None) -> None:
    assert read_instructions({"ptx": ptx}).vector_bits == bits
