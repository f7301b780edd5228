"""Draft of the compiler as a value, and the request for it. Imports no torch and executes no
problem file.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

from kernelwright.policies.base import Value

PROCESS_ENTRY = "kernelwright.policies.inductor.process:serve"
"""Entry point (`module:function`) of the sandboxed process."""
WARM_UP_ENTRY = "kernelwright.policies.inductor.process:warm"
"""The function that prepares the process from which sandboxed ones are forked."""
DRAFT_SECONDS = 90.0
"""Seconds for a draft with a waiting user: `agent solve` ends within two minutes if nothing
solves a module.
"""
SUITE_DRAFT_SECONDS = 300.0
"""Seconds for a draft in a suite: a network of a hundred layers takes over a minute."""
DRAFT_GRACE_SECONDS = 10.0
"""Seconds more, after which a process with an unfinished draft is killed."""
POLICY_NAME = "compiler"
"""The name under which the compiler is a policy."""

SPLIT_MARK = "# Products of fp32 are three products of float16 parts each, added up in fp32."
"""A line of the head of such a draft."""

Runner = Callable[[str, dict[str, Any], float], dict[str, Any]]
"""Calls an entry with a payload in a separate process, with a time limit in seconds, and returns
its answer.

Returns `{"refused": text}` if the process died or exceeded the limit.
"""


class DraftMode(StrEnum):
    """The operators the draft leaves to a library."""

    STRICT = "strict"
    """No operator: products, convolutions and pooling are kernels of the draft's own."""
    SHARE = "share"
    """Matrix products and convolutions; the operators after them are fused into the draft's
    kernels.
    """


class Draft(Value):
    """Answer of the compiler: a candidate, or the reason for a refusal."""

    source: str = ""
    """Text of the candidate; empty after a refusal."""
    mode: DraftMode = DraftMode.STRICT
    kernels: int = 0
    """Kernels the candidate launches."""
    library_calls: tuple[str, ...] = ()
    """Operators the candidate leaves to torch."""
    half_precision: bool = False
    """Whether a floating-point input or weight is of fp16 or bf16."""
    fixed_sizes: tuple[str, ...] = ()
    """Sizes tracing turned into numbers: at other values of these the candidate is wrong."""
    transformation: str = ""
    """Name of the transformation behind the draft, such as `a reduction in two stages`; empty for the
    compiler.
    """
    plan: str = ""
    """Decisions that differ from the compiler's defaults (decisions/plan.py); empty for a draft without a plan."""
    preface: str = ""
    """Text before the draft in the reply that is stored, such as the table of the plans that were tried."""
    algebra: bool = False
    """Whether exact algebra removes operations of the problem: the gain from that is reported apart from speed."""
    refused: str = ""
    """Reason for a refusal in one line: the unsupported operator or line of the problem."""
    seconds: float = 0.0

    @property
    def usable(self) -> bool:
        """Whether there is a candidate."""
        return bool(self.source)


def draft(
    source: str,
    run: Runner,
    *,
    mode: DraftMode = DraftMode.STRICT,
    partial: bool = False,
    varied: tuple[str, ...] = (),
    tf32: bool = False,
    split: bool = False,
    seconds: float = DRAFT_SECONDS,
) -> Draft:
    """Returns the compiler's draft for a problem's text. Never raises for a faulty problem.

    Args:
        source: Text of the problem.
        run: Runs an entry in a sandboxed process.
        mode: Operators left to a library.
        partial: Operators without a kernel stay in torch instead of ending the draft.
        varied: Texts of the problem at other sizes; their differences show which numbers are sizes.
        tf32: fp32 convolutions multiply in tf32 if torch.backends.cudnn.allow_tf32 is set (torch's default).
        split: Large fp32 products are three products of float16 parts, which keep fp32's accuracy.
        seconds: Time limit.
    """
    payload = draft_request(source, mode, partial, varied, tf32, split, seconds)
    answer = run(PROCESS_ENTRY, payload, seconds + DRAFT_GRACE_SECONDS)
    fields = {name: answer[name] for name in Draft.model_fields if name in answer}
    return Draft.model_validate({**fields, "mode": mode})


def draft_request(
    source: str,
    mode: DraftMode,
    partial: bool,
    varied: tuple[str, ...],
    tf32: bool,
    split: bool,
    seconds: float,
) -> dict[str, Any]:
    """Returns the payload of a request for a draft; the arguments are those of `draft`."""
    return {
        "source": source, "mode": mode.value, "partial": partial, "varied": list(varied), "tf32": tf32,
        "seconds": seconds, "split": split,
    }  # fmt: skip


def has_split_products(source: str) -> bool:
    """Whether a draft's products of fp32 are several products of its parts. In fp32 it is another draft."""
    return f"\n{SPLIT_MARK}\n" in source


def with_fp32_products(source: str) -> str:
    """Returns a draft with its tf32 products in fp32; empty if the draft has none."""
    exact = source.replace("input_precision='tf32'", "input_precision='ieee'")
    return exact if exact != source else ""
