"""Warm processes that stay for the next evaluator of a test session: to start a pair takes five seconds of a core."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kernelwright.tools.evaluation import pipeline
from kernelwright.tools.evaluation.pipeline import new_zygote
from kernelwright.tools.reference_trials.trials import reference_trials
from kernelwright.tools.sandbox import Limits, ProcessKind, Zygote


class Kept(Zygote):
    """Stays when an evaluator that has it is closed; `end` ends it."""

    def close(self) -> None:
        """Nothing: the next evaluator goes on with it."""

    @property
    def ended(self) -> bool:
        """Whether something has ended the warm process."""
        return self._process.poll() is not None

    def end(self) -> None:
        """Ends the warm process and every candidate that it has forked."""
        super().close()


@contextmanager
def keeping() -> Iterator[None]:
    """Inside, evaluators on a CPU that this process makes go on with the warm processes of those before them.

    One with limits of its own, or for a GPU, gets its own.
    """
    kept: dict[ProcessKind, Kept] = {}

    def kept_zygote(
        kind: ProcessKind, gpu: int | None = None, limits: Limits | None = None
    ) -> Zygote:
        if gpu is not None or limits is not None:
            return new_zygote(kind, gpu, limits)
        if kind not in kept or kept[kind].ended:
            made = new_zygote(kind)
            made.__class__ = Kept
            assert isinstance(made, Kept)
            kept[kind] = made
        return kept[kind]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "new_zygote", kept_zygote)
        yield
    for zygote in kept.values():
        zygote.end()
    reference_trials().close()
