"""Drafts the layers, and keeps drafts in a folder so that a GPU machine need not draft them again."""

from __future__ import annotations

import time
from pathlib import Path

from bench.layer_suite.layer import Layer, LayerSize
from kernelwright.agent.solve.drafting import Drafter
from kernelwright.policies.inductor.draft import Draft, DraftMode
from kernelwright.tools.problem import Problem

RULES = {DraftMode.STRICT: "strict", DraftMode.SHARE: "share:0.001"}


class LayerDrafter:
    """Drafts layers, or reads drafts from a folder."""

    def __init__(self, drafter: Drafter, folder: Path | None, for_gpu: bool) -> None:
        """folder: where drafts are read and written; None keeps none. for_gpu: products of fp32 may be of parts."""
        self._drafter, self._folder, self._for_gpu = drafter, folder, for_gpu

    def draft(self, layer: Layer, size: LayerSize, mode: DraftMode) -> Draft:
        """Returns the draft of a layer at a size, as `agent solve` drafts it for a problem of that size."""
        path = self._folder / f"{layer.name}-{size}-{mode}.json" if self._folder else None
        if path and path.exists():
            return Draft.model_validate_json(path.read_text(encoding="utf-8"))
        start = time.monotonic()
        problem = Problem(name=layer.name, source=layer.source(size))
        draft = self._drafter.draft(problem, RULES[mode], tf32=self._for_gpu, split=self._for_gpu)
        draft = draft.with_(seconds=time.monotonic() - start)
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(draft.model_dump_json(indent=1), encoding="utf-8")
        return draft
