"""Drafts kernels for a problem with several shapes: a draft for each form of its calls, joined by a dispatch.

Calls of equal nesting, ranks and dtypes share a draft with free sizes. If tracing turned a size into a number that
differs between them, each shape gets a separate draft.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kernelwright.agent.contracts.deriving import form_of
from kernelwright.agent.shapes.dispatch_text import (
    Call,
    KernelGroup,
    TensorOfCall,
    dispatching_text,
)
from kernelwright.agent.shapes.written_inputs import InputsText
from kernelwright.policies.inductor.draft import Draft
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.input_spec import InputSpec, input_spec
from kernelwright.tools.shapes.judged_shapes import JudgedShape, judged_shapes, problem_to_judge

DraftAt = Callable[[Problem, Sequence[Problem]], Draft]
"""Drafts a problem; the others are the same problem at further sizes."""


@dataclass(frozen=True)
class ShapeTarget:
    """A shape with its problem and the description of its inputs."""

    shape: JudgedShape
    problem: Problem
    spec: InputSpec
    argument_names: tuple[str, ...]

    @property
    def form(self) -> str:
        """Key of the calls of a common draft: dtype, nesting, ranks and dtypes of the inputs."""
        return repr((self.shape.dtype, form_of(self.spec.inputs)))

    @property
    def call(self) -> Call:
        """Returns the tensors among the arguments of a call."""
        call: Call = {}
        for name, value in zip(self.argument_names, self.spec.inputs, strict=False):
            if isinstance(value, dict) and "tensor" in value:
                tensor = value["tensor"]
                call[name] = TensorOfCall(dtype=tensor["dtype"], shape=tuple(tensor["shape"]))
        return call


def drafted_at_shapes(
    problem: Problem, draft_at: DraftAt, say: Callable[[str], None] = lambda step: None
) -> Draft:
    """Returns a draft for all shapes of a problem, or the first refusal, with its shape.

    Raises ProblemError if the reference fails at a shape.
    """
    arguments = tuple(InputsText(problem.source).argument_names)
    targets: list[ShapeTarget] = []
    for shape in judged_shapes(problem):
        at_shape = problem_to_judge(problem, shape)
        targets.append(ShapeTarget(shape, at_shape, input_spec(at_shape, as_it_is=True), arguments))
    groups: list[KernelGroup] = []
    drafts: list[Draft] = []
    for members in _by_form(targets):
        for served, draft in _drafts_of(members, draft_at, say):
            if not draft.usable:
                return draft.with_(refused=f"at shape {served[0].shape.name}: {draft.refused}")
            drafts.append(draft)
            source = _without_cast(draft.source, served[0].shape.dtype)
            calls = tuple(target.call for target in served)
            names = tuple(target.shape.name for target in served)
            groups.append(KernelGroup(shapes=names, source=source, calls=calls))
    return drafts[0].with_(
        source=dispatching_text(groups),
        kernels=sum(draft.kernels for draft in drafts),
        library_calls=tuple(dict.fromkeys(c for draft in drafts for c in draft.library_calls)),
        half_precision=any(draft.half_precision for draft in drafts),
        algebra=any(draft.algebra for draft in drafts),
        seconds=sum(draft.seconds for draft in drafts),
    )


def _drafts_of(
    members: Sequence[ShapeTarget], draft_at: DraftAt, say: Callable[[str], None]
) -> list[tuple[Sequence[ShapeTarget], Draft]]:
    """Returns a draft for all members; a draft for each if the common draft fixes a size."""
    # A shape with many elements is traced first: extents of 1 would be traced as broadcasts.
    ordered = sorted(members, key=lambda target: target.spec.bytes, reverse=True)
    say(f"drafting for {', '.join(target.shape.name for target in members)}")
    common = draft_at(ordered[0].problem, [target.problem for target in ordered[1:]])
    if len(members) == 1 or (common.usable and not common.fixed_sizes):
        return [(members, common)]
    drafts: dict[str, tuple[list[ShapeTarget], Draft]] = {}
    for target in members:
        say(f"drafting for {target.shape.name} alone")
        draft = draft_at(target.problem, ())
        # Members with equal texts are a single group: the dispatch has no condition between them.
        key = draft.source or draft.refused
        drafts.setdefault(key, ([], draft))[0].append(target)
    return [(served, draft) for served, draft in drafts.values()]


def _by_form(targets: Sequence[ShapeTarget]) -> list[list[ShapeTarget]]:
    groups: dict[str, list[ShapeTarget]] = {}
    for target in targets:
        groups.setdefault(target.form, []).append(target)
    return list(groups.values())


def _without_cast(source: str, dtype: str) -> str:
    """Removes the cast at the end of the constructor, which the problem at a dtype has (judged_shapes.py): users cast
    the module themselves.
    """
    casts = (
        list(re.finditer(rf"^ +self\.to\(torch\.{dtype}\)\n", source, re.MULTILINE))
        if dtype
        else []
    )
    if not casts:
        return source
    return source[: casts[-1].start()] + source[casts[-1].end() :]
