"""The process that runs references (`kernelwright.worker_process`).

Prints `ready`, reads `EntryCall`s as JSON, and answers each with an `EntryAnswer`. The references'
output goes to stderr, from which the parent also reads the position at which this process hangs or
dies.
"""

from __future__ import annotations

import faulthandler
import importlib
import os
import signal
import sys
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from pydantic import JsonValue

from kernelwright.session_priority import session_keeps_priority_of
from kernelwright.source_lines import origin_of_line
from kernelwright.tools.problem import Problem, ProblemError
from kernelwright.tools.report import Value
from kernelwright.worker_process import connection_to_parent, end_forks, end_with_parent

if TYPE_CHECKING:
    from kernelwright.tools.references.input_spec import InputSpec

MAX_OWN_SIZE_SECONDS = 15.0
"""Limit in processor seconds for a reference that needs data at its own size; after that only
smaller sizes are tried."""
PLACE_SIGNAL = signal.SIGUSR1
"""Signal upon which this process prints its stack to stderr."""


class EntryCall(Value):
    """A call of one of our functions, which runs a problem's reference."""

    entry: str
    """`package.module:function`, called with the problem and the arguments."""
    problem: Problem
    arguments: dict[str, JsonValue] = {}


class EntryAnswer(Value):
    """The result of an `EntryCall`, or why there is none."""

    result: JsonValue = None
    problem_error: str = ""
    """The reference's own error, as one line."""
    internal_error: str = ""
    """An error of ours."""


class TrialOutcome(Value):
    """Outcome of a trial."""

    error: str = ""
    """Reason why the reference cannot be used; empty if usable."""
    randomness: str = ""
    """Reason why no kernel can reproduce the answer; empty for a deterministic reference."""


def main() -> None:
    """Runs one reference after the other, as the parent process asks over the pipe."""
    connection, _ = connection_to_parent()
    end_with_parent()
    end_forks()
    session_keeps_priority_of(os.getppid())
    import torch

    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    faulthandler.enable()
    faulthandler.register(PLACE_SIGNAL)
    os._exit = _raise_exit
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    connection.send_bytes(b"ready")
    while True:
        try:
            call = EntryCall.model_validate_json(connection.recv_bytes())
        except EOFError:
            return
        connection.send_bytes(_answer(call).model_dump_json().encode())


def _raise_exit(status: int) -> NoReturn:
    """Replaces `os._exit`, so that a reference that calls it is reported with its line."""
    raise SystemExit(status)


def _answer(call: EntryCall) -> EntryAnswer:
    module, _, name = call.entry.partition(":")
    try:
        function: Callable[..., JsonValue] = getattr(importlib.import_module(module), name)
        return EntryAnswer(result=function(call.problem, **call.arguments))
    except ProblemError as error:
        return EntryAnswer(problem_error=str(error))
    except Exception as error:
        return EntryAnswer(internal_error=f"{type(error).__name__}: {error}")


def trial(problem: Problem, train_mode: bool) -> JsonValue:
    """Entry point: tries the reference; returns the `TrialOutcome` as JSON. Raises ProblemError if
    it fails."""
    try_reference(problem)
    return TrialOutcome(randomness=randomness_of(problem, train_mode=train_mode)).model_dump(
        mode="json"
    )


def run_with_data(problem: Problem) -> JsonValue:
    """Entry point: runs the reference on a CPU at the problem's sizes. Raises ProblemError if it
    fails."""
    from kernelwright.tools.references.input_spec import describe_on

    describe_on(problem, "cpu")
    return None


def try_reference(problem: Problem) -> None:
    """Runs the reference without data at its own size (with data if required), and with data at the
    size of a CPU judge.

    Raises ProblemError if the reference fails, or returns no tensor.
    """
    from kernelwright.tools.references.input_spec import WITHOUT_DATA_ERRORS, describe_on
    from kernelwright.tools.references.small_sizes import shrink

    spec = None
    trouble = None
    try:
        spec = describe_on(problem, "meta")
    except WITHOUT_DATA_ERRORS:
        spec, trouble = _described_with_data(problem)
    small = shrink(problem)
    if small.fits and (small.sizes or spec is None or spec.tensors == "meta"):
        spec = describe_on(problem.with_sizes(small.sizes), "cpu")
    elif trouble is not None:
        raise trouble
    if spec is not None and all(output.dtype == "none" for output in spec.outputs):
        raise ProblemError(
            f"the reference {problem.name} fails: forward returns no tensor: end it with `return` and the tensor that "
            "it computes"
        )


def _described_with_data(problem: Problem) -> tuple[InputSpec | None, ProblemError | None]:
    """Runs the reference on the CPU at its own size. Returns nothing after a timeout, and the error
    if memory runs out.

    Such an error only counts if no smaller size can be run.
    """
    from kernelwright.tools.references.input_spec import describe_on

    signal.signal(signal.SIGPROF, _raise_timeout)
    signal.setitimer(signal.ITIMER_PROF, MAX_OWN_SIZE_SECONDS)
    try:
        return describe_on(problem, "cpu"), None
    except ProblemError as error:
        if isinstance(error.__cause__, TimeoutError):
            return None, None
        if isinstance(error.__cause__, MemoryError) or "can't allocate memory" in str(error):
            return None, error
        raise
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def randomness_of(problem: Problem, *, train_mode: bool) -> str:
    """Returns a line with the source position if the outputs depend on torch's generator; empty
    otherwise.

    Also empty if no size is small enough to try.
    """
    from kernelwright.tools.expected.prepared_problem import prepare_problem
    from kernelwright.tools.reference_trials.eval_mode import as_judged, lines_that_may_draw
    from kernelwright.tools.references.small_sizes import shrink

    lines = lines_that_may_draw(problem)
    small = shrink(problem)
    if lines == () or not small.fits:
        return ""
    judged = problem if train_mode else as_judged(problem).problem
    randomness = prepare_problem(judged.with_sizes(small.sizes), "cpu", 1).randomness
    origins = [str(origin_of_line(problem.source, number)) for number in lines or ()]
    position = f" at {' and '.join(filter(None, origins))}" if any(origins) else ""
    return randomness.replace("the reference is random", f"the reference is random{position}", 1)


def _raise_timeout(number: int, frame: object) -> NoReturn:
    raise TimeoutError


if __name__ == "__main__":
    main()
