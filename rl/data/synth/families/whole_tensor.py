"""Reductions of a whole tensor to a number, possibly used on every element again.

Three kernels: partial sums, their total in a fixed order, then the elements.
"""

from __future__ import annotations

from kernelwright.rl.data.synth.blocks.chain import ChainNeeds, ChainSite, draw_steps, kernel_lines
from kernelwright.rl.data.synth.engine.program import DrawnProgram, finish_program, kernel
from kernelwright.rl.data.synth.engine.sketch import Sketch
from kernelwright.rl.data.synth.engine.tensors import start

# name, reference, term of an element, what the total becomes, what an element becomes ("" where the number is the
# answer)
FORMS = (
    ("frobenius_norm", ("x = x / torch.norm(x, p=\"fro\")", "norm = torch.norm(x)\nx = x / norm"), "x * x",
    "tl.sqrt(total)", "x / number"),
    ("whole_rms", ("x = x / torch.sqrt(torch.mean(x ** 2) + 1e-5)",), "x * x", "tl.sqrt(total / n + 1e-5)",
    "x / number"),
    ("whole_centre", ("x = x - torch.mean(x)", "x = x - x.mean()"), "x", "total / n", "x - number"),
    ("whole_mean", ("x = torch.mean(x)", "x = x.mean()"), "x", "total / n", ""),
    ("whole_sum_abs", ("x = torch.sum(torch.abs(x))",), "tl.abs(x)", "total", ""),
    ("whole_norm", ("x = torch.norm(x)", "x = torch.sqrt(torch.sum(x * x))"), "x * x", "tl.sqrt(total)", ""),
)  # fmt: skip


def whole_tensor(sketch: Sketch, depth: int) -> DrawnProgram:
    """Draws x -> chain -> a number of the whole tensor, or the elements combined with this number
    -> chain.
    """
    sketch.family = "reductions"
    start(sketch, sketch.rng.choices((2, 3, 4), (4, 1, 2))[0])
    name, spelt, term, final, element = sketch.pick(FORMS)
    sketch.family = "norms" if element else "reductions"
    first = min(depth - 1, sketch.pick((0, 0, 1)))
    before = draw_steps(sketch, first, tensors=False, binary=0)
    sketch.reference += sketch.pick(spelt).split("\n")
    sketch.ops.append(name)
    after = draw_steps(sketch, depth - 1 - first, tensors=False, binary=0)
    parts, last = ChainNeeds(), ChainNeeds()
    lines = kernel_lines(sketch, before, ChainSite("x", "", "mask"), parts)
    head = [
        "    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)",
        "    mask = offs < n",
        "    x = tl.load(x_ptr + offs, mask=mask, other=0.0)",
        *lines,
    ]
    body = [
        *head,
        f"    tl.store(part_ptr + tl.program_id(0), tl.sum(tl.where(mask, {term}, 0.0), axis=0))",
    ]
    sketch.kernels.append(
        kernel("part_kernel", ["x_ptr", *parts.parameters, "part_ptr", "n", "BLOCK"], body)
    )
    tail = [] if element else kernel_lines(sketch, after, ChainSite("number", "", ""), last)
    _total(sketch, final, tail, last)
    # With an element expression a third kernel uses the number on every element.
    if element:
        again, later = (
            ChainNeeds(list(parts.parameters), list(parts.values)),
            [f"    x = {element}"],
        )
        later += kernel_lines(sketch, after, ChainSite("x", "", "mask"), again)
        body = [
            *head,
            "    number = tl.load(number_ptr)",
            *later,
            "    tl.store(out_ptr + offs, x, mask=mask)",
        ]
        sketch.kernels.append(
            kernel(
                "apply_kernel",
                ["x_ptr", "number_ptr", *again.parameters, "out_ptr", "n", "BLOCK"],
                body,
            )
        )
        _host(sketch, parts, last, again)
    else:
        _host(sketch, parts, last, None)
    return finish_program(sketch)


def _total(sketch: Sketch, final: str, tail: list[str], extra: ChainNeeds) -> None:
    body = [
        "    acc = tl.zeros((BLOCK,), tl.float32)",
        "    for start in range(0, blocks, BLOCK):",
        "        offs = start + tl.arange(0, BLOCK)",
        "        acc += tl.load(part_ptr + offs, mask=offs < blocks, other=0.0)",
        "    total = tl.sum(acc, axis=0)",
        f"    number = {final}",
        *tail,
        "    tl.store(number_ptr, number)",
    ]
    sketch.kernels.append(
        kernel(
            "total_kernel",
            ["part_ptr", *extra.parameters, "number_ptr", "blocks", "n", "BLOCK"],
            body,
        )
    )


def _host(sketch: Sketch, parts: ChainNeeds, last: ChainNeeds, again: ChainNeeds | None) -> None:
    number = "number" if again else "out"
    arguments = ", ".join(["x", *parts.values, "part", "n"])
    total = ", ".join(["part", *last.values, number, "blocks", "n"])
    sketch.host += [
        "n = x.numel()",
        "blocks = triton.cdiv(n, 4096)",
        "part = torch.empty(blocks, device=x.device)",
        f"{number} = torch.empty((), device=x.device)",
        f"part_kernel[(blocks,)]({arguments}, BLOCK=4096)",
        f"total_kernel[(1,)]({total}, BLOCK=1024)",
    ]
    if again is not None:
        elements = ", ".join(["x", "number", *again.values, "out", "n"])
        sketch.host += [
            "out = torch.empty_like(x)",
            f"apply_kernel[(blocks,)]({elements}, BLOCK=4096)",
        ]
