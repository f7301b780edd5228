"""The entry of the sandboxed process: it executes the problem's file under a pretended GPU and returns a candidate's
text.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import pkgutil
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from kernelwright.policies.draft_channel import DraftChannel
from kernelwright.policies.inductor.attempts import (
    TracedAttempt,
    attempts_at,
    size_freedom,
    trace_attempt,
)
from kernelwright.policies.inductor.decisions.plan import Plan, PlanRefused
from kernelwright.policies.inductor.draft import DRAFT_SECONDS
from kernelwright.policies.inductor.refusing import (
    DraftRefused,
    line_of,
    line_text,
    operator_of,
    reason_of,
)
from kernelwright.program_arguments import no_program_arguments


class OutOfTime(BaseException):
    """The time for a draft is over. Not an Exception, which Inductor would catch and go on."""


WARM_UP_PROBLEM = """
import torch
import torch.nn as nn
rows, columns, wide = 64, 128, 32
class Model(nn.Module):
    def __init__(self, columns, wide):
        super().__init__()
        self.linear = nn.Linear(columns, wide)
    def forward(self, x):
        return torch.softmax(self.linear(x), dim=-1)
def get_inputs():
    return [torch.randn(rows, columns)]
def get_init_inputs():
    return [columns, wide]
"""
"""Problem drafted once in the warm process, to import all modules for its forks."""


COLLECTED_AFTER = 50_000
"""Number of allocated objects between garbage collections.

A draft creates millions of lasting objects; collecting after every 700 takes a fifth of the time.
"""

GOOD_ENOUGH_SECONDS = 10.0
"""Seconds after which a draft with a fixed size is accepted."""


def warm() -> None:
    """Pretends the GPU and drafts an example: forked processes inherit imports and torch's tables."""
    prepare()
    _import_rooms()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        answer(WARM_UP_PROBLEM, "strict", False, [], False)


def _import_rooms() -> None:
    """Imports every module of this package: a walled-in process may not read their files any more."""
    import kernelwright.policies.inductor as room

    for module in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
        importlib.import_module(module.name)


_prepared: list[bool] = []


def prepare() -> None:
    """Prepares the process, once: the patches stay."""
    if _prepared:
        return
    gc.set_threshold(COLLECTED_AFTER)
    from kernelwright.policies.inductor.functions.functional import replace_functions
    from kernelwright.policies.inductor.functions.interpolation import scales_for_one_cell
    from kernelwright.policies.inductor.functions.parameters import (
        converted_modules,
        parameters_of_values,
    )
    from kernelwright.policies.inductor.lowering.integers import own_greatest_common_divisor
    from kernelwright.policies.inductor.private_torch import (
        accept_symbols,
        own_scatters,
        pretend_gpu,
    )

    pretend_gpu()
    accept_symbols()
    own_scatters()
    own_greatest_common_divisor()
    replace_functions()
    scales_for_one_cell()
    parameters_of_values()
    converted_modules()
    _prepared.append(True)


def serve(channel: DraftChannel, payload: dict[str, Any]) -> None:
    """Answers a request of `kernelwright.policies.inductor.draft`."""
    prepare()
    with warnings.catch_warnings(), no_program_arguments():
        warnings.simplefilter("ignore")
        arguments = (
            payload[name]
            for name in ("source", "mode", "partial", "varied", "tf32", "seconds", "split")
        )
        channel.send(answer(*arguments))


def answer(
    source: str, mode: str, partial: bool, varied: list[str], tf32: bool = False, seconds: float = DRAFT_SECONDS,
    split: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Returns the fields of a Draft after at most `seconds`: of the best attempt, or the location
    of the timeout.
    """
    return answered(
        lambda: write_draft(source, mode == "strict", partial, varied, tf32, seconds, split),
        source,
        seconds,
    )


def answered(work: Callable[[], dict[str, Any]], source: str, seconds: float) -> dict[str, Any]:
    """Returns the fields that some work returns, or the reason why it failed, with the seconds that it took."""
    start = time.monotonic()
    try:
        fields = work()
    except OutOfTime as error:
        fields = {"refused": f"no draft within {seconds:g} s{_describe_place(error, source)}"}
    except PlanRefused as error:
        fields = {"refused": str(error)}
    except (
        Exception
    ) as error:  # whatever the problem, torch or Inductor raises is why there is no draft
        advice = error.advice if isinstance(error, DraftRefused) else ""
        fields = {"refused": f"{_describe_failure(error, source)}{f': {advice}' if advice else ''}"}
    return {**fields, "seconds": time.monotonic() - start}


def _describe_place(error: BaseException, source: str) -> str:
    """`, at line 12 (y = sort(x))`, or the operator lowered, or nothing."""
    if location := line_of(error, source):
        return f", at {location}"
    operator = operator_of(error)
    return f", at the operator {operator}" if operator else ""


def _describe_failure(error: Exception, source: str) -> str:
    """Returns one line with the operator and the line of the problem, if these are known."""
    reason = reason_of(error, source)
    if line_of(error, source):
        return reason
    operator = error.operator if isinstance(error, DraftRefused) else operator_of(error)
    if not operator:
        return reason
    from kernelwright.policies.inductor.tracing.finding import line_that_calls

    at = reason if isinstance(error, DraftRefused) else f"{reason} at the operator {operator}"
    number = line_that_calls(source, operator)
    return at if number is None else f"{at} at {line_text(source, number)}"


def write_draft(
    source: str, strict: bool, partial: bool, varied: list[str], tf32: bool = False, seconds: float = DRAFT_SECONDS,
    split: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Returns the fields of the best attempt's draft. Raises as `best_attempt` does."""
    with lowerings(strict, split), time_limit(seconds):
        _, fields = best_attempt(source, strict and not partial, varied, tf32)
    return fields


def best_attempt(
    source: str, strict: bool, varied: list[str], tf32: bool, plan: Plan | None = None
) -> tuple[TracedAttempt, dict[str, Any]]:
    """Returns the attempt whose draft has the fewest fixed sizes, and that draft's fields.

    Raises the last attempt's exception, or OutOfTime, if no attempt succeeds: with the fewest symbols the last attempt
    is closest to the problem as written. plan: passed to the lowering of each attempt.
    """
    start = time.monotonic()
    attempts = attempts_at(source, varied)
    failure: BaseException | None = None
    best: tuple[TracedAttempt, dict[str, Any]] | None = None
    # The guess with the most sizes comes first; a later guess replaces it only with fewer fixed
    # sizes.
    for free in attempts.guesses:
        try:
            attempt = trace_attempt(attempts, free, strict, tf32)
            fields = attempt.lower(plan)
        except OutOfTime as error:
            failure = error
            break
        except Exception as error:
            failure = error
            if isinstance(error, DraftRefused) and not str(error).startswith("Inductor"):
                break
            continue
        if best is None or size_freedom(fields) > size_freedom(best[1]):
            best = attempt, fields
        if not best[1]["wanting"] or time.monotonic() - start > GOOD_ENOUGH_SECONDS:
            break
    if best is not None:
        return best
    assert failure is not None
    raise failure


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises OutOfTime in the block after so many seconds; in the main thread only."""

    def end(*_: object) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.1))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class lowerings:
    """Installs the lowerings of a mode for the length of the block."""

    def __init__(self, strict: bool, split: bool) -> None:
        self._strict, self._split = strict, split

    def __enter__(self) -> None:
        from torch._inductor import lowering

        from kernelwright.policies.inductor.inductor_patches import configure_inductor
        from kernelwright.policies.inductor.lowering.convolutions import (
            library_convolutions,
            own_convolutions,
        )
        from kernelwright.policies.inductor.lowering.products import own_products
        from kernelwright.policies.inductor.lowering.softmax import online_softmax
        from kernelwright.policies.inductor.lowering.windows import written_out_windows

        self._before = dict(lowering.lowerings), dict(lowering._maybe_layout_constraints)
        configure_inductor(self._strict)
        online_softmax()
        written_out_windows()
        if self._strict:
            own_products(self._split)
            own_convolutions()
        else:
            library_convolutions()

    def __exit__(self, *_: object) -> None:
        from torch._inductor import lowering

        lowering.lowerings.clear()
        lowering.lowerings.update(self._before[0])
        lowering._maybe_layout_constraints.clear()
        lowering._maybe_layout_constraints.update(self._before[1])
