"""The draft of the compiler as a value, and the request for one. Nothing here imports torch or executes a problem's
file.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

from kernelwright.policies.base import Value

PROCESS_ENTRY = "kernelwright.policies.inductor.process:serve"
"""`module:function` of what runs in the sandboxed process."""
WARM_UP_ENTRY = "kernelwright.policies.inductor.process:warm"
"""The function that prepares the process from which sandboxed ones are forked."""
DRAFT_SECONDS = 90.0
"""Seconds for one draft that somebody waits for: `agent solve` ends within two minutes where nothing solves a module.
"""
SUITE_DRAFT_SECONDS = 300.0
"""Seconds for one draft of a suite: a network of a hundred layers takes over a minute."""
DRAFT_GRACE_SECONDS = 10.0
"""Seconds more, after which the process that has not ended its draft itself is ended."""
POLICY_NAME = "compiler"
"""The name under which the compiler is a policy."""

SPLIT_MARK = "# Products of fp32 are three products of float16 parts each, added up in fp32."
"""A line of the head of such a draft."""

Runner = Callable[[str, dict[str, Any], float], dict[str, Any]]
"""Calls an entry with a payload in a process of its own, for so many seconds, and returns its answer.

It returns `{"refused": text}` where the process gave no answer in time, or died.
"""


class DraftMode(StrEnum):
    """The operators that the draft leaves to a library."""

    STRICT = "strict"
    """No operator: products, convolutions and pooling are kernels of the draft's own."""
    SHARE = "share"
    """Matrix products and convolutions; what follows them is fused into own kernels."""


class Draft(Value):
    """One answer of the compiler: a candidate, or why there is none."""

    source: str = ""
    """The candidate's text; empty where there is none."""
    mode: DraftMode = DraftMode.STRICT
    kernels: int = 0
    """Kernels that the candidate launches."""
    library_calls: tuple[str, ...] = ()
    """Operators that the candidate leaves to torch."""
    fixed_sizes: tuple[str, ...] = ()
    """Sizes that tracing turned into numbers: at other values of these the candidate is wrong."""
    transformation: str = ""
    """The transformation that wrote it, such as `flash attention`; empty where the compiler did."""
    algebra: bool = False
    """Whether exact algebra removes operations of the problem: the gain from that is reported apart from speed."""
    refused: str = ""
    """The reason for a refusal in one line: the operator or the line of the problem that the compiler cannot draft."""
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
    """The compiler's draft for a problem's text.

    partial: operators that have no kernel of their own stay in torch, instead of ending the draft. varied: the same
    problem at other sizes, whose differences tell which numbers are sizes. tf32: convolutions of fp32 multiply in tf32
    where torch.backends.cudnn.allow_tf32 lets torch's own do so, which is its default on a GPU. split: large products
    of fp32 are three products of float16 parts, which keep fp32's accuracy.
    Never raises for what is wrong with the problem.
    """
    payload = {"source": source, "mode": mode.value, "partial": partial, "varied": list(varied), "tf32": tf32,
             "seconds": seconds, "split": split}  # fmt: skip
    answer = run(PROCESS_ENTRY, payload, seconds + DRAFT_GRACE_SECONDS)
    fields = {name: answer[name] for name in Draft.model_fields if name in answer}
    return Draft.model_validate({**fields, "mode": mode})


def has_split_products(source: str) -> bool:
    """Whether a draft's products of fp32 are several products of its parts. In fp32 it is another draft."""
    return f"\n{SPLIT_MARK}\n" in source


def with_fp32_products(source: str) -> str:
    """A draft with its products of tf32 in fp32; empty where it has none."""
    exact = source.replace("input_precision='tf32'", "input_precision='ieee'")
    return exact if exact != source else ""
