"""Shares a binary between specialisations of a kernel.

Triton compiles a kernel anew for each pattern of arguments divisible by 16: sizes with different
patterns cost a compilation each, for code with the same results. A binary compiled with fewer
assumptions is valid wherever a binary with more assumptions is. The problem's own size keeps its
own specialisation for timing.
"""

from __future__ import annotations

import json
from collections.abc import Collection

from kernelwright.tools.trace.trace import Kernel, Traced


def share_binaries(traced: Traced, main_kernels: Collection[str]) -> Traced:
    """Weakens every kernel outside `main_kernels` to the assumptions common to all kernels equal
    except for attributes.

    main_kernels: keys of kernels which stay unchanged.
    """
    alike: dict[str, list[str]] = {}
    for key, kernel in traced.kernels.items():
        if key not in main_kernels:
            alike.setdefault(_without_assumptions(kernel), []).append(key)
    shared = {
        key: _with_common_attributes([traced.kernels[k] for k in keys])
        for keys in alike.values()
        for key in keys
    }
    shared_traced: Traced = traced.with_(
        kernels={key: shared.get(key, kernel) for key, kernel in traced.kernels.items()}
    )
    return shared_traced


def guess_for_other_sizes(traced: Traced, main_kernels: Collection[str]) -> Traced:
    """Returns the kernels of `main_kernels` as other sizes probably launch them: without
    assumptions on divisors of integers, with the same alignment of tensors.
    """
    guessed = {key: _of_addresses_only(traced.kernels[key]) for key in main_kernels}
    guessed_traced: Traced = traced.with_(
        kernels={key: kernel for key, kernel in guessed.items() if kernel is not None}
    )
    return guessed_traced


def _of_addresses_only(kernel: Kernel) -> Kernel | None:
    """Returns the kernel with the attributes of pointers only; None if it has no other
    attributes.
    """
    kinds = list(kernel.signature.values())
    pointer_attributes = tuple(
        attribute
        for attribute in kernel.attributes
        if str(kinds[int(attribute[0][0])]).startswith(("*", "tensordesc"))
    )
    if len(pointer_attributes) == len(kernel.attributes):
        return None
    guessed: Kernel = kernel.with_(attributes=pointer_attributes)
    return guessed


def _without_assumptions(kernel: Kernel) -> str:
    return json.dumps(kernel.model_dump(exclude={"attributes"}), sort_keys=True, default=str)


def _with_common_attributes(kernels: list[Kernel]) -> Kernel:
    """Returns the first kernel with the attributes common to all."""
    common = set.intersection(
        *({_attribute_key(attribute) for attribute in kernel.attributes} for kernel in kernels)
    )
    first = kernels[0]
    weakest: Kernel = first.with_(
        attributes=tuple(
            attribute for attribute in first.attributes if _attribute_key(attribute) in common
        )
    )
    return weakest


def _attribute_key(attribute: object) -> str:
    return json.dumps(attribute)
