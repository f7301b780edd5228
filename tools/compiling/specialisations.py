"""One binary for several specialisations of a kernel.

Triton compiles a kernel anew for each pattern of arguments that 16 divides: sizes that differ in it cost a compilation
each, and the code does the same. What is compiled with fewer of these assumptions is right wherever one with more of
them is. The problem's own size keeps its own specialisation: that is the one that is timed.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from kernelwright.tools.trace.trace import Kernel, Traced


def share_binaries(traced: Traced, own: Collection[str]) -> Traced:
    """The same with every kernel that is not in `own` compiled under no more assumptions than all kernels that differ
    from it in nothing else. own: keys of kernels that stay as they are.
    """
    alike: dict[str, list[str]] = {}
    for key, kernel in traced.kernels.items():
        if key not in own:
            alike.setdefault(_without_assumptions(kernel), []).append(key)
    shared = {
        key: _with_common_attributes([traced.kernels[k] for k in keys])
        for keys in alike.values()
        for key in keys
    }
    kept: Traced = traced.with_(
        kernels={key: shared.get(key, kernel) for key, kernel in traced.kernels.items()}
    )
    return kept


def guess_for_other_sizes(traced: Traced, own: Collection[str]) -> Traced:
    """The kernels in `own` as other sizes are likely to launch them: nothing is known of what divides their whole
    numbers, while tensors begin at the same multiples of bytes.
    """
    guessed = {key: _of_addresses_only(traced.kernels[key]) for key in own}
    made: Traced = traced.with_(
        kernels={key: kernel for key, kernel in guessed.items() if kernel is not None}
    )
    return made


def _of_addresses_only(kernel: Kernel) -> Kernel | None:
    """Returns the kernel with the attributes of pointers alone; None where it has no others."""
    kinds = list(kernel.signature.values())
    kept = tuple(
        one
        for one in kernel.attributes
        if str(kinds[int(one[0][0])]).startswith(("*", "tensordesc"))
    )
    if len(kept) == len(kernel.attributes):
        return None
    guessed: Kernel = kernel.with_(attributes=kept)
    return guessed


def _without_assumptions(kernel: Kernel) -> str:
    return json.dumps(kernel.model_dump(exclude={"attributes"}), sort_keys=True, default=str)


def _with_common_attributes(kernels: list[Kernel]) -> Kernel:
    """The first, with the attributes that all have."""
    common = set.intersection(
        *({_attribute_key(one) for one in kernel.attributes} for kernel in kernels)
    )
    first = kernels[0]
    weakest: Kernel = first.with_(
        attributes=tuple(one for one in first.attributes if _attribute_key(one) in common)
    )
    return weakest


def _attribute_key(attribute: Any) -> str:
    return json.dumps(attribute)
