"""Measures a problem's manifest: tries its wrong answers on draw after draw, as long as they
pass.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kernelwright.tools.comparing.comparison import measure
from kernelwright.tools.manifests.manifest import (
    KB_TOLERANCE_FP32,
    KB_TOLERANCE_HALF,
    Manifest,
    Passing,
)
from kernelwright.tools.manifests.wrong_answers import Trial, WrongAnswer, make_trial, wrong_answers
from kernelwright.tools.problem import Problem, ProblemError
from kernelwright.tools.references.input_distributions import Draw
from kernelwright.tools.references.magnitudes import perturb_weights
from kernelwright.tools.references.reference import Reference
from kernelwright.tools.timing.roofline import Structure, Work, count_work, structure_of

if TYPE_CHECKING:
    import torch

MEASURING_SEED = 20_251
OTHER_DRAWS = (Draw.SIGNED, Draw.WIDE, Draw.LARGE, Draw.CONSTANT_ROWS, Draw.SPECIAL)
STRUCTURE_COST = {"cpu": (1 << 25, 1 << 29), "cuda": (1 << 31, 1 << 37)}
"""Bytes and operations of a call above which inputs and weights are not perturbed individually."""


def measure_manifest(
    problem: Problem, device: str = "cpu", sizes: dict[str, int] | None = None
) -> Manifest:
    """Measures the manifest of a problem in this process.

    sizes: module-level integers instead of the problem's own; bytes and operations are always
    those of the problem's own sizes. Raises ProblemError if the reference fails.
    """
    sizes = sizes or {}
    start = time.monotonic()
    reference = Reference(problem.with_sizes(sizes), device)
    with exact_products():
        model = reference.model(MEASURING_SEED)
        first = make_trial(reference, model, MEASURING_SEED + 1)
        manifest = Manifest(
            problem=problem.name,
            hash=problem.hash,
            device=_device_name(device),
            sizes=sizes,
            finite=first.finite,
        )
        manifest = manifest.with_(
            **_eager_error(first), random=_is_random(first), work=_work(problem, reference)
        )
        first.exact = None
        passing, tried = _measure_passing(reference, model, first)
    return manifest.with_(passing=passing, tried=tried, seconds=round(time.monotonic() - start, 2))


@contextlib.contextmanager
def exact_products() -> Iterator[None]:
    """fp32 products in fp32: cuDNN's convolutions are tf32 unless told otherwise, and eager's own
    error would excuse everybody's.
    """
    import torch

    matmul = torch.backends.cuda.matmul
    cudnn = torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = False
    cudnn.allow_tf32 = False
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before


def _device_name(device: str) -> str:
    import torch

    return "cpu" if device == "cpu" else torch.cuda.get_device_name(device)


def _eager_error(trial: Trial) -> dict[str, float]:
    if trial.exact is None:
        return {}
    deviations = [
        measure(e, e, x).tolerance
        for e, x in zip(trial.eager, trial.exact, strict=True)
        if hasattr(e, "dtype")
    ]
    return {
        "eager_rms": max((f.rms for f in deviations), default=0.0),
        "eager_row": max((f.row for f in deviations), default=0.0),
    }


def _is_random(trial: Trial) -> bool:
    trial.rng += 1
    other = trial.again()
    trial.rng -= 1
    return not trial.passes_ours(other)


def _work(problem: Problem, reference: Reference) -> Work | None:
    """Returns the work at full sizes; the structure is measured at the given shapes if these are
    small enough for some dozens of runs.
    """
    try:
        whole = count_work(problem)
        work = whole if reference.problem.hash == problem.hash else count_work(reference.problem)
        most_bytes, most_operations = STRUCTURE_COST[reference.device.split(":")[0]]
        if (work.bytes or 0) > most_bytes or (work.operations or 0) > most_operations:
            return whole
        return count_work(problem, _structure(reference))
    except (ProblemError, RuntimeError, TypeError, ValueError, NotImplementedError):
        return None


def _structure(reference: Reference) -> Structure | None:
    try:
        return structure_of(reference)
    except (ProblemError, RuntimeError, TypeError, ValueError):
        return None


def _measure_passing(
    reference: Reference, model: torch.nn.Module, first: Trial
) -> tuple[dict[str, Passing], int]:
    """Returns the passing wrong answers with the rules they pass, and the number of answers
    tried.
    """
    every = dict(wrong_answers(first, lambda: reference.model(MEASURING_SEED + 99)))
    trial = make_trial(reference, model, MEASURING_SEED + 2)
    passing: dict[str, Passing] = {}
    for name, answer in every.items():
        outputs = answer(trial)
        rules = Passing(
            kb_fp32=trial.passes(outputs, KB_TOLERANCE_FP32),
            kb_half=trial.passes(outputs, KB_TOLERANCE_HALF),
            own=trial.passes_ours(outputs),
        )
        if any((rules.kb_fp32, rules.kb_half, rules.own)):
            passing[name] = rules
    del trial  # frees its tensors before the next trials are made
    # An answer that passes on the problem's own inputs is tried on the judge's other draws, too.
    standing = {name: every[name] for name, rules in passing.items() if rules.own}
    for name in _answers_still_passing(standing, _other_trials(reference, first)):
        passing[name] = passing[name].with_(ours=True)
    return passing, len(every)


def _other_trials(reference: Reference, first: Trial) -> Iterator[Callable[[], Trial]]:
    """The judge's other draws, each made only when something still stands."""
    moved = first.model
    if any(p.numel() for p in first.model.parameters()):
        moved = reference.model(MEASURING_SEED)
        perturb_weights(moved, MEASURING_SEED)
        yield lambda: make_trial(reference, moved, MEASURING_SEED + 3)
    for number, draw in enumerate(OTHER_DRAWS):
        yield functools.partial(make_trial, reference, moved, MEASURING_SEED + 4 + number, draw)


def _answers_still_passing(
    standing: dict[str, WrongAnswer], trials: Iterator[Callable[[], Trial]]
) -> list[str]:
    remaining = dict(standing)
    for make in trials:
        if not remaining:
            break
        trial = make()
        if not trial.finite:
            continue
        for name, answer in list(remaining.items()):
            if not trial.passes_ours(answer(trial)):
                del remaining[name]
    return list(remaining)
