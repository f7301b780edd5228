"""Judges drafts of layers at tiny sizes under Triton's interpreter, without a GPU."""

from __future__ import annotations

from bench.layer_suite.layer import Layer, LayerSize
from kernelwright.policies.inductor.draft import Draft, DraftMode
from kernelwright.tools.evaluation.pipeline import Evaluator
from kernelwright.tools.options import Options
from kernelwright.tools.problem import Problem

SHOWN_CHARACTERS = 160


def verdict(evaluator: Evaluator, layer: Layer, draft: Draft, mode: DraftMode) -> str:
    """Returns `yes`, or the judge's reason against the draft."""
    if not draft.usable:
        return f"no draft: {draft.refused[:SHOWN_CHARACTERS]}"
    # At tiny sizes the library's share of the work says nothing of the share at full size. Configurations turn
    # sizes into numbers, so the draft is for one width: no other sizes are drawn.
    rule = "report" if mode is DraftMode.SHARE else "strict"
    problem = Problem(name=layer.name, source=layer.source(LayerSize.TINY))
    report = evaluator.evaluate(problem, draft.source, Options(seed=1, sizes=0, own_work=rule))
    if report.correct:
        return "yes"
    return "no: " + " ".join(report.explanation.split())[:SHOWN_CHARACTERS].replace("|", "/")
