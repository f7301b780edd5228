"""The decisions by name: each question, and the sentence of each alternative.

A decision is opened where the compiler lowers or schedules (`decisions/deciding.py`), by the alternatives that are
legal there. Imports no torch.
"""

from __future__ import annotations

from kernelwright.policies.base import Value
from kernelwright.policies.inductor.decisions.plan import Plan


class Decision(Value):
    """A choice about a draft that changes its speed and never its result."""

    name: str
    site: str
    """Kind of site: one operator, a pair of operators, or the whole graph."""
    alternatives: dict[str, str]
    """Alternative -> the sentence that describes it to a reader."""
    is_predictable: bool = False
    """Whether fewer bytes predict a gain. The other decisions have defaults that follow rules measured on GPUs (bank
    conflicts, tensor cores, parallelism), so that only a timing speaks against these defaults.
    """


ONE_OPERATOR = "operator"
PAIR = "producer + consumer"
GRAPH = "all"

_TABLE = (
    Decision(name="value", site=ONE_OPERATOR, is_predictable=True, alternatives={
        "store": "write the value to memory once",
        "recompute": "compute the value again in each kernel that reads it",
    }),
    Decision(name="fuse", site=PAIR, is_predictable=True, alternatives={
        "together": "one kernel for both, before any other fusion",
        "apart": "a kernel each",
    }),
    Decision(name="loops", site=f"{PAIR}, or {GRAPH}", is_predictable=True, alternatives={
        "reorder": "reorder the loops of a kernel so that it can be fused with its neighbour",
        "keep": "leave the loops in the order of their own memory accesses",
    }),
    Decision(name="reduction", site=ONE_OPERATOR, alternatives={
        "whole": "reduce in one kernel",
        "parts": "reduce parts in parallel, then their results in a second kernel",
    }),
    Decision(name="row", site=ONE_OPERATOR, alternatives={
        "block": "hold a row in registers",
        "loop": "pass over a row in a loop",
    }),
    Decision(name="softmax", site=ONE_OPERATOR, alternatives={
        "two_passes": "maximum first, then the sum",
        "one_pass": "maximum and sum in one pass, rescaled",
    }),
    Decision(name="product", site=ONE_OPERATOR, alternatives={
        "dot": "a tiled product by tl.dot",
        "parts": "three float16 products for one of fp32",
        "sum": "multiply and add up without tl.dot",
    }),
    Decision(name="right", site=ONE_OPERATOR, alternatives={
        "in_place": "read the right operand as it lies",
        "row_major": "copy the right operand to row-major order first",
    }),
    Decision(name="operands", site=ONE_OPERATOR, alternatives={
        "stored": "write computed operands to memory before the product",
        "computed": "compute operands while the product loads them",
    }),
    Decision(name="convolution", site=ONE_OPERATOR, alternatives={
        "product": "an implicit product by tl.dot",
        "sum": "multiply and add up the window without tl.dot",
        "phases": "a product for each phase of the stride",
    }),
    Decision(name="patches", site=ONE_OPERATOR, alternatives={
        "channels_last": "copy the input so that channels lie side by side",
        "in_place": "read the input as it lies",
    }),
    Decision(name="layout", site=GRAPH, alternatives={
        "channels_last": "library convolutions read and write channels last",
        "contiguous": "library convolutions keep channels first",
    }),
)  # fmt: skip

DECISIONS: dict[str, Decision] = {decision.name: decision for decision in _TABLE}


def is_predictable(plan: Plan) -> bool:
    """Returns whether fewer bytes predict a gain for every choice of a plan."""
    return all(DECISIONS[choice.decision].is_predictable for choice in plan.choices)
