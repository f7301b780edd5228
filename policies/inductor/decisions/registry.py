"""The decisions by name, with a description of each alternative.

A decision is opened where the compiler lowers or schedules (`decisions/deciding.py`), with the alternatives legal
there. Imports no torch.
"""

from __future__ import annotations

from kernelwright.policies.base import Value
from kernelwright.policies.inductor.decisions.plan import Plan


class Decision(Value):
    """Choice about a draft: changes its speed and never its result."""

    name: str
    alternatives: dict[str, str]
    """Alternative -> its description for a reader of a menu."""
    is_predictable: bool = False
    """Whether fewer bytes predict a gain. The defaults of the other decisions follow rules measured on GPUs (bank
    conflicts, tensor cores, parallelism): only a timing speaks against these defaults.
    """


_TABLE = (
    Decision(name="value", is_predictable=True, alternatives={
        "store": "write the value to memory once",
        "recompute": "compute the value again in each kernel that reads it",
    }),
    Decision(name="fuse", is_predictable=True, alternatives={
        "together": "one kernel for both, before any other fusion",
        "apart": "a kernel each",
    }),
    Decision(name="loops", is_predictable=True, alternatives={
        "reorder": "reorder the loops of a kernel so that it can be fused with its neighbour",
        "keep": "leave the loops in the order of their own memory accesses",
    }),
    Decision(name="reduction", alternatives={
        "whole": "reduce in one kernel",
        "parts": "reduce parts in parallel, then their results in a second kernel",
    }),
    Decision(name="row", alternatives={
        "block": "hold a row in registers",
        "loop": "pass over a row in a loop",
    }),
    Decision(name="softmax", alternatives={
        "two_passes": "maximum first, then the sum",
        "one_pass": "maximum and sum in one pass, rescaled",
    }),
    Decision(name="product", alternatives={
        "dot": "a tiled product by tl.dot",
        "parts": "three float16 products for one of fp32",
        "sum": "multiply and add up without tl.dot",
    }),
    Decision(name="right", alternatives={
        "in_place": "read the right operand as it lies",
        "row_major": "copy the right operand to row-major order first",
    }),
    Decision(name="operands", alternatives={
        "stored": "write computed operands to memory before the product",
        "computed": "compute operands while the product loads them",
    }),
    Decision(name="convolution", alternatives={
        "product": "an implicit product by tl.dot",
        "sum": "multiply and add up the window without tl.dot",
        "phases": "a product for each phase of the stride",
    }),
    Decision(name="patches", alternatives={
        "channels_last": "copy the input so that channels lie side by side",
        "in_place": "read the input as it lies",
    }),
    Decision(name="layout", alternatives={
        "channels_last": "library convolutions read and write channels last",
        "contiguous": "library convolutions keep channels first",
    }),
)  # fmt: skip

DECISIONS: dict[str, Decision] = {decision.name: decision for decision in _TABLE}


def is_predictable(plan: Plan) -> bool:
    """Returns whether fewer bytes predict a gain for every choice of a plan."""
    return all(DECISIONS[choice.decision].is_predictable for choice in plan.choices)
