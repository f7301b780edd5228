"""Kernels rebuilt from text for Triton's interpreter, which runs them as Python: they compute, and Python is out of
their reach.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from kernelwright.tools.trace.trace import Function, Json

SCRIPT = """
import json, sys
from pathlib import Path
import torch
from kernelwright.tools.compiling.text.kernel_text import rebuild
from kernelwright.tools.trace.trace import Function
answers = []
for given in json.load(sys.stdin):
    functions = {key: Function.model_validate_json(text) for key, text in given.items()}
    x, out = torch.arange(-4.0, 4.0), torch.zeros(8)
    try:
        kernel = rebuild(functions, "kernel", interpreted=True, folder=Path("/kernels"))
        kernel[(2,)](x, out, 8, BLOCK=4)
        answers.append({"out": out.tolist(), "names": sorted(kernel.fn.__globals__)})
    except Exception as error:
        answers.append({"error": str(error)})
print(json.dumps(answers))
"""
NAMES: dict[str, Json] = {"tl": {"triton": "triton.language"}}
BEGIN = "at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\nv = tl.load(x + at, mask=at < n, other=0.0)\n"
END = "\ntl.store(out + at, v, mask=at < n)"


def functions(
    body: str, names: dict[str, Json] | None = None, **others: Function
) -> dict[str, Function]:
    """A kernel of (x, out, n, BLOCK) that changes v, which it loads from x and stores to out."""
    lines = "".join(f"    {line}\n" for line in (BEGIN + body + END).splitlines())
    text = f"def kernel(x, out, n, BLOCK: tl.constexpr):\n{lines}"
    return others | {"kernel": Function(name="kernel", text=text, names=NAMES | (names or {}))}


def run(*kernels: dict[str, Function]) -> list[dict[str, Any]]:
    """What each stores, over x of -4.0 to 3.0 in two programs of four, or the error. In one process of its own."""
    given = json.dumps([{key: f.model_dump_json() for key, f in each.items()} for each in kernels])
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    told = subprocess.run(
        [sys.executable, "-c", SCRIPT], input=given, env=environment, capture_output=True, text=True
    )
    assert told.returncode == 0, told.stderr[-2000:]
    answers: list[dict[str, Any]] = json.loads(told.stdout)
    return answers


def test_a_kernel_computes_with_helpers_constants_and_names_of_its_own() -> None:
    helper = Function(
        name="double",
        text="def double(a, by=SCALE):\n    return a * by\n",
        names={"SCALE": {"value": 2.0}},
    )
    names: dict[str, Json] = {
        "double": {"function": "double"}, "maximum": {"triton": "triton.language.core:maximum"},
        "srange": {"triton": "triton.language.core:static_range"},
        "space": {"members": {"shift": {"constexpr": 1.0}}}, "cdiv": {"triton": "triton:cdiv"},
    }  # fmt: skip
    lanes = Function(name="lanes", text="def lanes(block):\n    return max(1, block // 4)\n")
    names["lanes"] = {"constexpr_function": "lanes"}
    body = (
        "v = maximum(double(v), 0.0) + space.shift\nfor i in srange(2):\n    v += i\nw: tl.constexpr = "
        "cdiv(BLOCK, 3) * lanes(BLOCK)\nu: tl.tensor = v * w\n"
        "v = tl.where(-1 < v < 100, u, 0.0)"
    )
    larger = Function(
        name="larger", text="def larger(a, b):\n    return tl.maximum(a, b)\n", names=NAMES
    )
    reduced = functions(
        "v += tl.reduce(v, 0, larger)", {"larger": {"function": "larger"}}, larger=larger
    )
    told, most = run(functions(body, names, double=helper, lanes=lanes), reduced)
    assert told["out"] == [4.0] * 4 + [4.0, 8.0, 12.0, 16.0]
    assert most["out"] == [-5.0, -4.0, -3.0, -2.0, 3.0, 4.0, 5.0, 6.0]


FOREIGN = (
    "np.exp(v)", "triton", "math.exp(1.0)", "sum((v, v))", "open('/etc/passwd')", "type(v)", "dict()", "ValueError",
    "zip((1,), (2,))", "str(v)", "object", "lhs",
    "GridExecutor", "vars()",
)  # fmt: skip
"""What stock Triton lends an interpreted kernel: Python's builtins and its interpreter's own module."""


def test_a_kernels_namespace_holds_its_names_and_nothing_else() -> None:
    told, *others = run(functions("v = v + 1.0"), *(functions(f"v = {name}") for name in FOREIGN))
    lent = {"interpreter_semantic", "_InterpreterComparison"}
    assert {name for name in told["names"] if not name.startswith("__")} - lent == {"tl"}
    assert [answer for answer in others if "is not defined" not in answer.get("error", "")] == []


def test_what_a_kernel_was_given_cannot_be_changed() -> None:
    """Constants are tuples: a list would be memory from one program to the next.

    A foreign object stands for nothing.
    """
    kept, table = run(
        functions("kept.sort()", {"kept": {"value": [1.0, 2.0]}}),
        functions("v = table(v)", {"table": {"unknown": "dict"}}),
    )
    assert "'tuple' object has no attribute 'sort'" in kept["error"]
    assert "'Foreign' object is not callable" in table["error"]


def test_what_is_a_tensor_when_compiled_is_one_when_interpreted() -> None:
    """Loop variables, numbers that are added to, assigned, chosen or compared: a kernel asks them for `to`, and
    cannot tell where it runs by them.
    """
    told = run(
        functions("for i in range(0, 3):\n    v += i.to(tl.float32) * (1 if i == 2 else 0)"),
        functions(
            "for i in tl.range(n.to(tl.int64), 12, 2, num_stages=2):\n    v += i.dtype.primitive_bitwidth"
        ),
        functions("k = 0\nk += 2\nv += k.to(tl.float32)\na, b = (1, 2)\nv += b.to(tl.float32)"),
        functions("v += min(tl.program_id(0), 7).to(tl.float32)\nv += max(2, BLOCK)"),
        functions("v = tl.where(not (v > 0), v, -v)"),
        functions("v = tl.where((v > 0 and v < 3) or v == -4, 1.0, 0.0)"),
        functions(
            "for i in range(1):\n    if isinstance(i, tl.tensor) and not isinstance(BLOCK, "
            "tl.constexpr):\n        v = v * 0 + 5"
        ),
        functions(
            "for i in tl.static_range(2):\n    w: tl.constexpr = i + 1\n    v = v + tl.sum(tl.arange(0, w), 0)"
        ),
        functions(
            "for i in range(3):\n    if i == 1 and BLOCK == 4:\n        v = v + 1.0\nv += (m := 2).to(tl.float32)"
        ),
        functions("for i in range(1.5):\n    v = v + 1"),
    )
    x = [-4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0]
    assert [answer.get("error", "")[:80] for answer in told[:-1]] == [""] * 9
    assert told[0]["out"] == [a + 2 for a in x]
    assert told[1]["out"] == [a + 128 for a in x]
    assert told[2]["out"] == [a + 4 for a in x]
    assert told[3]["out"] == [a + 4 + (n > 3) for n, a in enumerate(x)]
    assert told[4]["out"] == [-abs(a) for a in x]
    assert told[5]["out"] == [float(0 < a < 3 or a == -4) for a in x]
    assert told[6]["out"] == [5.0] * 8
    assert told[7]["out"] == [a + 1 for a in x]
    assert told[8]["out"] == [a + 3 for a in x]
    assert "must all be ints" in told[9]["error"]
