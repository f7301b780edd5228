"""Maps the end of a command to its exit code and to a line with advice. Imports nothing heavy."""

from __future__ import annotations

import atexit
import errno
import json
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import Any, NoReturn, TextIO, cast

from kernelwright import IMPORT_TIME
from kernelwright.errors import InputError


class Exit(IntEnum):
    """Exit codes of every command."""

    DONE = 0
    """The command succeeded. For `check`: the kernel is correct, and does its own work."""
    INCORRECT = 1
    BAD_INPUT = 2
    """An input of the user's cannot be used."""
    INFRASTRUCTURE = 3
    """This machine failed, or Kernelwright did: the candidate was not judged."""
    NEEDS_GPU = 4
    """For `check` and `solve`: no fault was found, and the outputs can be checked on a GPU only."""
    NOT_CHECKED = 5
    """For `check` and `solve`: no fault was found, and the outputs were not checked; the report
    says why.
    """
    INTERRUPTED = 130
    """Ctrl-C. Other signals exit with 128 and their number: 143 for SIGTERM, 129 for SIGHUP."""
    NOBODY_READS = 141
    """The reader of the output went away before its end (`| head`). The shell's own number for a
    broken pipe, so the command does not seem to report an incorrect candidate.
    """


REQUIREMENT_OF_MODULE = {
    "torch": "torch>=2.11,<2.16",
    "triton": "triton>=3.6,<3.10",
    **dict.fromkeys(
        ("transformers", "textual", "matplotlib", "openai", "networkx", "numpy"), "kernelwright"
    ),
    **dict.fromkeys(("trl", "peft", "accelerate", "datasets", "datasketch"), "kernelwright[train]"),
    **dict.fromkeys(("fastapi", "uvicorn", "prometheus_client"), "kernelwright[serve]"),
    **dict.fromkeys(("mcp", "mcp_types", "tomlkit"), "kernelwright[mcp]"),
    "ray": "kernelwright[ray]",
    "bitsandbytes": "kernelwright[qlora]",
    "psycopg": "kernelwright[postgres]",
    "vllm": "kernelwright[vllm]",
    "pyarrow": "pyarrow",
}
"""Argument of pip install for a missing module, by the module's name."""


ERRNOS_OF_UNUSABLE_PATHS = (
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EEXIST,
)


def _current_folder_is_gone() -> bool:
    try:
        return not os.getcwd()
    except FileNotFoundError:
        return True


MAX_SHOWN_NAME_CHARACTERS = 300
"""Maximum number of characters of a file's name in a message."""


def exit_of_outcome(outcome: str) -> Exit:
    """Returns the exit status of a command that judged a single candidate. outcome: a
    `ReportOutcome`.
    """
    statuses = {"correct": Exit.DONE, "needs_gpu": Exit.NEEDS_GPU, "not_checked": Exit.NOT_CHECKED}
    return statuses.get(outcome, Exit.INCORRECT)


def require(*modules: str) -> None:
    """Raises ModuleNotFoundError for the first of these modules that is not installed; nothing is
    imported.
    """
    from importlib.util import find_spec

    for name in modules:
        if find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def explain(error: BaseException, program: str = "agent") -> tuple[str, Exit]:
    """Returns a line for the user, and the exit code, for any exception that ends a command of
    `program` early.
    """
    import typer

    from kernelwright.agent.runtime.command_class import USAGE_ERROR
    from kernelwright.policies.base import PolicyRefused, PolicyUnavailable, Trouble
    from kernelwright.tools.problem import ProblemError
    from kernelwright.tools.report import InfrastructureError

    if isinstance(error, USAGE_ERROR):
        command = error.ctx.command_path if error.ctx else program
        message = error.format_message().rstrip(".") or "no command was given"
        return f"{message}{_missing_parameter_help(error)} (see {command} --help)", Exit.BAD_INPUT
    match error:
        case KeyboardInterrupt() | typer.Abort():
            return "interrupted", Exit.INTERRUPTED
        case PolicyRefused(trouble=Trouble.NOT_INSTALLED):
            return str(error), Exit.INFRASTRUCTURE
        case InputError() | ProblemError() | PolicyRefused():
            return str(error), Exit.BAD_INPUT
        case InfrastructureError():
            return str(error), Exit.BAD_INPUT if error.bad_input else Exit.INFRASTRUCTURE
        case PolicyUnavailable():
            return str(error), Exit.INFRASTRUCTURE
        case ModuleNotFoundError(name=str(missing)) if (
            missing.split(".")[0] in REQUIREMENT_OF_MODULE
        ):
            name = missing.split(".")[0]
            return (
                f"{name} is not installed: pip install '{REQUIREMENT_OF_MODULE[name]}' "
                "(agent doctor says what is missing)",
                Exit.INFRASTRUCTURE,
            )
        case OSError():
            return _explain_os_error(error)
        case MemoryError():
            return (
                "out of memory: close other programs, or judge fewer candidates at once",
                Exit.INFRASTRUCTURE,
            )
    return (
        f"internal error, please report it: {type(error).__name__}: {error} (--debug shows where)",
        Exit.INFRASTRUCTURE,
    )


def _explain_os_error(error: OSError) -> tuple[str, Exit]:
    """Returns a line for the user, and the exit code, for an error of the operating system."""
    file = _file_in_brackets(error)
    match error:
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            advice = "make room, or set TMPDIR to a larger disk"
            return f"the disk is full{file}: {advice}", Exit.INFRASTRUCTURE
        case FileNotFoundError() if _current_folder_is_gone():
            return "the current folder is gone: change to one that exists", Exit.BAD_INPUT
        case OSError(errno=number) if error.filename and number in ERRNOS_OF_UNUSABLE_PATHS:
            advice = "give a path that you may read and write"
            return f"{error.strerror}{file}: {advice}", Exit.INFRASTRUCTURE
        case OSError(errno=errno.ENAMETOOLONG | errno.ELOOP):
            return f"{error.strerror}{file}: give another path", Exit.BAD_INPUT
    return f"{error.strerror or error}{file}", Exit.INFRASTRUCTURE


_program = "agent"
_start = time.monotonic()


def note(text: str) -> None:
    """Prints a line on stderr that begins with the program's name, beside the result on stdout."""
    print(f"{_program}: {text}", file=sys.stderr, flush=True)


def run(command: Callable[..., Any], name: str, words: Sequence[str]) -> NoReturn:
    """Runs a typer command with its words, and exits. An error ends it with a line on stderr
    (with --debug also the traceback).
    """
    from kernelwright.agent.runtime.interrupts import listen_for_stops

    # trl and transformers send usage data to their makers unless this is set.
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    global _program, _start
    _program = name
    _start = IMPORT_TIME if list(words) == sys.argv[1:] else time.monotonic()
    _open_closed_streams()
    with listen_for_stops(), _without_warnings(words), _watched_output():
        sys.exit(_status_of(command, name, words))


class _WatchedOutput:
    """Standard output that remembers whether anything was written."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.was_written = False

    def write(self, text: str) -> int:
        """Writes the text and remembers the write."""
        self.was_written = True
        return self.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def _watched_output() -> Iterator[None]:
    watched = _WatchedOutput(sys.stdout)
    sys.stdout = cast("TextIO", watched)
    try:
        yield
    finally:
        if sys.stdout is watched:
            sys.stdout = watched.stream


def _has_written() -> bool:
    """Returns whether the command has printed something to standard output."""
    return isinstance(sys.stdout, _WatchedOutput) and sys.stdout.was_written


def command_seconds() -> float:
    """Returns the seconds since the start of the command, its imports included."""
    return time.monotonic() - _start


def _open_closed_streams() -> None:
    """Opens /dev/null for standard streams that the caller has closed (`>&-`). Otherwise the next
    opened file, such as the database, would have their number, and would receive the printed
    output.
    """
    # os.open takes the lowest free number: the loop fills 0, 1 and 2, and closes the first above.
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            stream = os.fdopen(number, "w" if number else "r", encoding="utf-8", closefd=False)
            setattr(sys, name, stream)


@contextmanager
def _without_warnings(words: Sequence[str]) -> Iterator[None]:
    """Hides the warnings of libraries, which are for their callers (torch: "Initializing
    zero-element tensors is a no-op"), unless --debug, `python -W` or PYTHONWARNINGS is set.
    """
    with warnings.catch_warnings():
        if not sys.warnoptions and "--debug" not in words:
            warnings.simplefilter("ignore")
        yield


def _status_of(command: Callable[..., Any], name: str, words: Sequence[str]) -> int:
    """Runs the command and returns its exit status."""
    try:
        code = command(args=list(words), prog_name=name, standalone_mode=False)
        sys.stdout.flush()
        # Newer versions of typer return this silently for Ctrl-C; older versions raise Abort.
        if code == Exit.INTERRUPTED:
            raise KeyboardInterrupt
    except BrokenPipeError:
        _throw_output_away()
        return Exit.NOBODY_READS
    except SystemExit as end:  # typer and rich exit with 1 after a broken pipe
        if _nobody_reads(end):
            return Exit.NOBODY_READS
        raise
    except (Exception, KeyboardInterrupt) as error:
        return _end_early(error, name, words)
    return int(code or 0)


def _end_early(error: BaseException, name: str, words: Sequence[str]) -> int:
    """Prints the line of an error and returns the exit status. With --json the line is also
    printed on stdout, as an object; with --debug the error is raised again.
    """
    from kernelwright.agent.runtime.interrupts import exit_status_of_stop, ignore_stops

    line, code = explain(error, name)
    line = " ".join(line.split())
    status = exit_status_of_stop() if code is Exit.INTERRUPTED else int(code)
    if code is Exit.INTERRUPTED:
        ignore_stops()
    # A paused command has printed its result already.
    if "--json" in words and not _has_written():
        print(json.dumps({"error": line, "exit_status": status}))
        _try_output()
    if "--debug" in words:
        raise error
    print(f"{name}: {line}", file=sys.stderr)
    if isinstance(error, OSError):
        _try_output()
    if code is Exit.INTERRUPTED:
        end_process(status)
    return status


def _nobody_reads(error: BaseException | None) -> bool:
    """Returns whether the exception was raised while a broken pipe was handled."""
    while error is not None:
        if isinstance(error, BrokenPipeError):
            return True
        error = error.__context__
    return False


def _try_output() -> None:
    """Flushes stdout, and drops the text if it cannot be written: otherwise Python would report
    the error again at its end, and exit with 120.
    """
    try:
        sys.stdout.flush()
    except OSError:
        _throw_output_away()


def _throw_output_away() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def end_process(code: int) -> NoReturn:
    """Ends the process with `code`, after all exit handlers.

    sys.exit does not always do so: if Ctrl-C came while a text was executed (an import that makes
    a dataclass), CPython remembers it for good and ends by SIGINT, even if the exception was
    caught (Python/pythonrun.c, run_eval_code_obj; Modules/main.c, Py_RunMain).
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def _missing_parameter_help(error: BaseException) -> str:
    """Returns the help of a missing argument or option, after a colon; empty for other errors of
    usage.
    """
    # By name: typer has a copy of click, so the class differs between versions.
    if type(error).__name__ != "MissingParameter":
        return ""
    help_text = getattr(getattr(error, "param", None), "help", None)
    return f": {help_text.rstrip('.')}" if help_text else ""


def _file_in_brackets(error: OSError) -> str:
    """Returns the error's file name in brackets, shortened if it is too long for a file."""
    name = str(error.filename or "")
    if not name:
        return ""
    return f" ({name if len(name) <= MAX_SHOWN_NAME_CHARACTERS else name[:80] + '...'})"
