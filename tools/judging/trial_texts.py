"""Texts that a tuner has timed, traced and compiled once: halving asks for the same one in several rounds."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

from kernelwright.tools.judging.compile_report import kernels_of
from kernelwright.tools.judging.front import Front, without_failed_configurations
from kernelwright.tools.judging.options import Options
from kernelwright.tools.problem import Problem
from kernelwright.tools.tracing.client import TracedCandidate

MOST_TEXTS = 128
"""That are kept, the last used ones."""


class CompiledText(NamedTuple):
    """One text traced and compiled for a trial."""

    candidate: TracedCandidate
    binaries: Mapping[str, Any]
    failure: str
    """Why it cannot be launched, one line; empty where it can."""


class CompiledTexts:
    """Texts at one size of their problem, traced and compiled once for all their trials. Thread-safe."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, ...], CompiledText] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, front: Front, problem: Problem, source: str, target: str, asked: Options) -> CompiledText:
        """What is launched by a text; made where it is not known yet. A failure that may pass is not kept."""
        key = (problem.hash, source, target, asked.model_dump_json())
        with self._lock:
            if (known := self._kept.get(key)) is not None:
                self._kept.move_to_end(key)
                return known
        made = _compile_text(front, problem, source, target, asked)
        with self._lock:
            if not made.failure:
                self._kept[key] = made
            while len(self._kept) > MOST_TEXTS:
                self._kept.popitem(last=False)
        return made


def _compile_text(front: Front, problem: Problem, source: str, target: str, asked: Options) -> CompiledText:
    """Configurations of an autotune list that do not compile are left out, as Triton leaves them out."""
    candidate = front.traced_at_own_size(problem, source, target, asked)
    binaries = front.compiled_at_own_size(candidate, target, source, asked)
    candidate = without_failed_configurations(candidate, binaries)
    used = kernels_of(candidate.traced, range(1)) if candidate.traced.traces else []
    failures = [*candidate.failures, *(one.failure for key, one in binaries.items() if key in used)]
    told = next((f for f in failures if f is not None), None)
    return CompiledText(candidate, binaries, f"{told.fault}: {told.message[:300]}" if told is not None else "")
