"""Finds changes of the surroundings under which a candidate's trace differs."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from time import process_time
from typing import Any

from kernelwright.tools.trace.trace import MAX_VARIANTS, Change
from kernelwright.tools.tracing import slicing
from kernelwright.tools.tracing.surroundings.draws import Changes, joint_changes, single_changes

MAX_SECONDS = 3.0
"""Time limit, in processor seconds, of all traces in changed surroundings: long networks get fewer.
"""
Traces = Callable[[Changes], dict[str, Any]]
"""Traces a new model in changed surroundings. Raises the candidate's errors."""


def differing_variants(
    trace: Traces, usual: dict[str, Any], rng: random.Random
) -> tuple[list[dict[str, Any]], list[str]]:
    """Returns the differing traces, each form once with the fewest changes, and the changes that
    the candidate refuses."""
    known_forms, variants, refused = {_form(usual)}, list[dict[str, Any]](), list[str]()
    begun = process_time()
    possible = list[Change]()

    def consider(changes: Changes) -> None:
        candidate_trace = trace(changes)
        if (form := _form(candidate_trace)) not in known_forms and len(variants) < MAX_VARIANTS:
            known_forms.add(form)
            variants.append(
                {"changes": [change.value for change in changes], "trace": candidate_trace}
            )

    singles = single_changes(bool(usual["state"]) and not packs_weights(usual), rng)
    for changes in itertools.chain(singles, joint_changes(possible, rng)):
        if process_time() - begun > MAX_SECONDS:
            break
        try:
            consider(changes)
        except Exception:  # a candidate may refuse whatever surrounds it
            refused += [changes[0].value] if len(changes) == 1 else []
            continue
        possible += changes if len(changes) == 1 else ()
    return variants, refused


def packs_weights(trace: dict[str, Any]) -> bool:
    """Returns True if the constructor rearranged weights for the calls, which then cannot follow
    later weights."""
    state = set(trace["state"].values())
    inputs = set(slicing.tensors_in(trace["inputs"]))
    beside = slicing.used_from_outside(trace["first"]) - state - inputs
    return bool(beside) and any(
        slicing.read_and_written(step)[0] & state for step in trace["setup"]
    )


def _form(trace: dict[str, Any]) -> str:
    """Returns a text that is equal for traces with equal steps, independent of tensor numbers."""
    roots = [
        *slicing.tensors_in([*trace["inputs"], *trace["later_inputs"]]),
        *trace["state"].values(),
    ]
    steps = [*trace["setup"], *trace["first"], *(trace["later"] or ())]
    outputs = [trace["first_outputs"], trace["later_outputs"]]
    return json.dumps(slicing.canonical(steps, outputs, roots), sort_keys=True)
