"""Triton's interpreter made quicker says what it said before: the same bits, with its language patched once a
launch.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import json, os
os.environ["TRITON_INTERPRET"] = "1"
import torch, triton, triton.language as tl
from triton.runtime import interpreter as theirs
from kernelwright.tools.replaying.interpreter.patches import repairs as ours

walks, walk = [], theirs._patch_lang
def counted(fn):
    walks.append(fn.__name__)
    return walk(fn)
theirs._patch_lang = counted
types = [tl.int1, tl.int8, tl.uint8, tl.int16, tl.int32, tl.int64, tl.float16, tl.bfloat16, tl.float32, tl.float64]
types += [tl.pointer_type(tl.float32), tl.block_type(tl.bfloat16, [4]), tl.block_type(tl.pointer_type(tl.int8), [4])]
before = [str(theirs._get_np_dtype(t)) for t in types]
if {quicker}:
    for change in ours.INTERPRETER_SPEEDUPS:
        change()
after = [str(theirs._get_np_dtype(t)) for t in types for _ in range(2)][::2]

@triton.jit
def mixed(h):
    h = (h ^ (h >> 16)) * 0x45D9F3B
    return h ^ (h >> 13)

@triton.jit
def row(x_ptr, out_ptr, hash_ptr, columns, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + r * columns + o, mask=o < columns, other=0.0)
    mean = tl.sum(x, axis=0) / columns
    diff = tl.where(o < columns, x - mean, 0.0)
    y = tl.sigmoid(diff) * tl.rsqrt(tl.sum(diff * diff, axis=0) / columns + 1e-5) + tl.max(diff, axis=0)
    tl.store(out_ptr + r * columns + o, y, mask=o < columns)
    tl.store(hash_ptr + r * columns + o, mixed(o + r * 7919), mask=o < columns)

torch.manual_seed(0)
x = torch.randn(16, 48)
out, hashed = torch.empty_like(x), torch.empty(16, 48, dtype=torch.int32)
for _ in range(2):
    row[(16,)](x, out, hashed, 48, BLOCK=64)
o = torch.arange(48, dtype=torch.int32) + torch.arange(16, dtype=torch.int32)[:, None] * 7919
h = (o ^ (o >> 16)) * 0x45D9F3B
assert torch.equal(hashed, h ^ (h >> 13)), "products wrap as a GPU's do"
print(json.dumps(dict(walks=len(walks), before=before, after=after, bits=out.view(torch.int32).flatten().tolist())))
"""


def _run(folder: Path, quicker: bool) -> dict:
    """A process of its own: Triton chooses at import."""
    script, root = folder / f"row_{quicker}.py", str(Path(__file__).parents[3])
    script.write_text(SCRIPT.format(quicker=quicker))
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, cwd=root,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{root}/src:{root}"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.slow
def test_the_same_bits_with_the_language_patched_once_a_launch(tmp_path):
    plain, quick = _run(tmp_path, quicker=False), _run(tmp_path, quicker=True)
    assert quick["bits"] == plain["bits"]
    assert quick["before"] == quick["after"] == plain["before"]
    assert plain["walks"] >= 2 * 16 * 4, "a launch, and every device function of every program"
    assert quick["walks"] <= 2 * 3, "a launch, and each module that device functions come from"
