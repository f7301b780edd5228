"""Launches kernels under the interpreter, many programs at a time and one by one, and prints as JSON whether both gave
the same, how many programs ran alone, and whether the launch had to be repeated one by one. For a process of its own:
the interpreter is changed for good.
"""

import json
import tempfile
import textwrap
from pathlib import Path

import torch

from kernelwright.tools.compiling.text.kernel_text import Rebuilt
from kernelwright.tools.replaying.interpreter import launching
from kernelwright.tools.replaying.interpreter.patches import installation
from kernelwright.tools.replaying.interpreter.recording import batches
from kernelwright.tools.replaying.interpreter.recording.programs import Programs
from kernelwright.tools.trace.trace import Function, Kernel

PROGRAMS = 48
TEXTS = {
    "softmax": """
        row, i = tl.program_id(0), tl.arange(0, BLOCK)
        a = tl.load(x + row * n + i, mask=i < n, other=-float("inf"))
        a = tl.exp(a - tl.max(a, axis=0))
        tl.store(y + row * n + i, a / tl.sum(a, axis=0), mask=i < n)""",
    "product": """
        row, i = tl.program_id(0), tl.arange(0, BLOCK)
        a = tl.load(x + i[:, None] * n + i[None, :], mask=(i[:, None] < n) & (i[None, :] < n), other=0.0)
        c = tl.dot(a * (row + 1), tl.trans(a), input_precision="ieee")
        tl.store(y + row * n + i, tl.sum(c, axis=1) + tl.max(c, axis=0), mask=i < n)""",
    "places": """
        row, i = tl.program_id(0), tl.arange(0, BLOCK)
        a = tl.load(x + row * n + i, mask=i < n, other=-float("inf"))
        best, place = tl.max(a, axis=0, return_indices=True)
        tl.store(y + row * n + i, tl.cumsum(tl.where(i < n, a, 0.0), axis=0) + place, mask=i < n)""",
    "combines": """
        row, i = tl.program_id(0), tl.arange(0, BLOCK)
        a = tl.load(x + row * n + i, mask=i < n, other=0.0)
        best, place = tl.reduce((tl.reshape(a, (8, BLOCK // 8)), tl.reshape(i, (8, BLOCK // 8))), 1, later)
        total = tl.associative_scan(a, 0, plain, reverse=True) + tl.reduce(a, None, plain)
        tl.store(y + row * n + i, total + tl.sum(best * place, axis=0) + tl.argmin(a, axis=0), mask=i < n)""",
    "decides": """
        row, i = tl.program_id(0), tl.arange(0, BLOCK)
        first = tl.load(x + row * n)
        total = tl.zeros((BLOCK,), tl.float32)
        if first > 0.5:
            total += 7.0
        for k in range(0, (first * 2).to(tl.int32) + 3):
            total += tl.load(x + row * n + i, mask=i < n, other=0.0) * k
        tl.store(y + row * n + i, total, mask=i < n)""",
    "loops": """
        row, i = tl.program_id(0), tl.arange(0, BLOCK)
        total = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, n, 8):
            total += tl.load(x + row * n + start + i, mask=(i < 8) & (start + i < n), other=0.0)
        tl.store(y + row * n + i, total, mask=i < n)""",
    "begins_at_its_own": """
        row, i = tl.program_id(0), tl.arange(0, BLOCK)
        total = tl.zeros((BLOCK,), tl.float32)
        for k in range(row, 64, tl.num_programs(0) // 4):
            total += tl.load(x + row * n + i, mask=i < n, other=0.0) * k
        for k in range(row + 9, row, -3):
            total = total * 0.5 + k.to(tl.float32)
        tl.store(y + row * n + i, total, mask=i < n)""",
    "in_place": """
        row, i = tl.program_id(0), tl.arange(0, BLOCK)
        for _ in range(3):
            tl.store(y + row * n + i, tl.load(y + row * n + i, mask=i < n) * 2 + row, mask=i < n)""",
    "half": """
        row, i = tl.program_id(0), tl.arange(0, BLOCK)
        a = tl.load(x + row * n + i, mask=i < n, other=0.0).to(tl.bfloat16)
        b = (a * 3.0).to(tl.float16).to(tl.float32) + a.to(tl.float32)
        tl.store(y + row * n + i, tl.sigmoid(b), mask=i < n)""",
    "scatters": """
        row, i = tl.program_id(0), tl.arange(0, BLOCK)
        a = tl.load(x + i * 48 + row, mask=i < n, other=0.0)
        tl.store(y + i * 48 + row, a, mask=(i < n) & (a > 0))""",
    "adds_atomically": """
        row, i = tl.program_id(0), tl.arange(0, BLOCK)
        tl.atomic_add(y + i, tl.load(x + row * n + i, mask=i < n, other=0.0), mask=i < n)""",
    "writes_the_same": """
        tl.store(y, tl.program_id(0) * 1.0)""",
    "reads_a_neighbour": """
        row = tl.program_id(0)
        tl.store(y + row, tl.load(y + row + 1) + 1.0)""",
    "swaps_in_place": """
        row = tl.program_id(0)
        a = tl.load(y + row)
        tl.store(y + 47 - row, a + 1.0)""",
}
COMBINING = {
    "later": """
        def later(a, i, b, j):
            chosen = (b > a) | ((b == a) & (j > i))
            return tl.where(chosen, b, a), tl.where(chosen, j, i)""",
    "plain": """
        def plain(a, b):
            return a + b""",
}
IN_TURNS = """
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(y + row, tl.sum(tl.load(x + row * n + i, mask=i < n, other=0.0), axis=0))
    ticket = tl.atomic_add(y + 100 + row // 4, 1.0)
    if ticket == 3.0:
        parts = tl.load(y + row // 4 * 4 + i, mask=i < 4, other=0.0)
        tl.store(y + 200 + row // 4, tl.sum(parts, axis=0))"""
"""Of four programs the last adds up what the others have left."""
SIGNATURE = {"x": "*fp32", "y": "*fp32", "n": "i32", "BLOCK": "constexpr"}
alone = [0]
interpreted = [0]
one_by_one = [0]


def outputs(name: str, body: str, *, together: bool) -> tuple[list[torch.Tensor], list[Programs]]:
    """What three launches give, and the kernel's records."""
    text = f"def {name}(x, y, n, BLOCK: tl.constexpr):" + textwrap.indent(
        textwrap.dedent(body), "    "
    )
    names = {"tl": {"triton": "triton.language"}}
    functions = {
        k: Function(name=k, text=textwrap.dedent(t).strip(), names=names)
        for k, t in COMBINING.items()
    }
    own = names | {k: {"function": k} for k in COMBINING if k in body}
    functions[name] = Function(name=name, text=text, names=own)
    rebuilt = Rebuilt(functions, interpreted=True, folder=Path(tempfile.mkdtemp()))
    kernels = launching.Interpreted(
        {name: Kernel(function=name, signature=SIGNATURE, constants=(((3,), 32),))}, rebuilt
    )
    kernel = kernels._kernels[name]
    kernel._function = counted(kernel._function, interpreted)
    launching.MIN_BATCHED_PROGRAMS = 4 if together else PROGRAMS + 1
    found = []
    for seed in range(3):
        kernels.begin_call(seed)
        x = torch.randn(PROGRAMS, 29, generator=torch.Generator().manual_seed(seed))
        y = torch.zeros_like(x)
        kernels.launch(name, (PROGRAMS, 1, 1), {"x": x, "y": y, "n": 29}, {0: x, 1: y})
        found.append(y)
    return found, list(kernel._records.values())


def counted(run, count):
    def one(*arguments, **named):
        count[0] += 1
        return run(*arguments, **named)

    return one


def main() -> None:
    installation.install()
    installation.rewrite_device_functions()
    Programs.run = counted(Programs.run, alone)
    batches._Branch._one_by_one = counted(batches._Branch._one_by_one, one_by_one)
    told = {}
    for name, body in TEXTS.items():
        wanted, _ = outputs(name, body, together=False)
        alone[0] = one_by_one[0] = 0
        found, records = outputs(name, body, together=True)
        equal = all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
        apart = any(record.apart for record in records)
        told[name] = {"equal": equal, "alone": alone[0], "programs": 3 * PROGRAMS, "apart": apart}
        told[name]["steps_one_by_one"] = one_by_one[0]
    interpreted[0] = 0
    found, _ = outputs("hands_on", IN_TURNS, together=True)
    told["hands_on"] = {
        "equal": all(map(hands_on, found)),
        "interpreted": interpreted[0],
        "programs": 3 * PROGRAMS,
    }
    print(json.dumps(told))


def hands_on(y: torch.Tensor) -> bool:
    """Whether the groups' sums are those of their rows'."""
    rows, sums = y.view(-1)[:PROGRAMS], y.view(-1)[200 : 200 + PROGRAMS // 4]
    return torch.allclose(rows.view(-1, 4).sum(1), sums, atol=1e-5) and bool((sums != 0).all())


if __name__ == "__main__":
    main()
