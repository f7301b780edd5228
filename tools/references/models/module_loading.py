"""Loads a reference's text as a module, and turns its warnings and errors into lines for the user."""

from __future__ import annotations

import contextlib
import hashlib
import linecache
import sys
import threading
import types
import warnings
from collections import deque
from collections.abc import Iterator
from typing import Any

from kernelwright.program_arguments import refusal_by_argparse
from kernelwright.tools.parsing import code_of
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import clean_text

MAX_REMEMBERED_MODULES = 512
_loaded_modules: deque[tuple[str, str]] = deque()
"""Names and files of modules, in the order of loading."""
_remembering = threading.Lock()
_shown: deque[tuple[str, type[Warning], str]] = deque(maxlen=1024)
"""Problem, category and text of the last warnings shown."""


def module_file(problem: Problem) -> str:
    """Returns the file name of a reference in tracebacks and warnings."""
    return f"<reference {problem.name}>"


def load_module(problem: Problem) -> types.ModuleType:
    """Executes a reference's source as a separate module. Raises the source's errors."""
    module = types.ModuleType(
        f"reference_{hashlib.sha256(problem.source.encode()).hexdigest()[:12]}"
    )
    module.__file__ = module_file(problem)
    linecache.cache[module.__file__] = (
        len(problem.source),
        None,
        problem.source.splitlines(True),
        module.__file__,
    )
    sys.modules[module.__name__] = module
    _remember(module)
    exec(code_of(problem.source, module.__file__), module.__dict__)
    return module


def _remember(module: types.ModuleType) -> None:
    """Keeps the last MAX_REMEMBERED_MODULES in `sys.modules` and `linecache`; a batch makes several
    per verdict."""
    with _remembering:
        _loaded_modules.append((module.__name__, str(module.__file__)))
        while len(_loaded_modules) > MAX_REMEMBERED_MODULES:
            name, file = _loaded_modules.popleft()
            if all(name != other for other, _ in _loaded_modules):
                sys.modules.pop(name, None)
            if all(file != other for _, other in _loaded_modules):
                linecache.cache.pop(file, None)


def describe_error(error: BaseException) -> str:
    """Describes an error by its type and the first line of its text, with advice if the text has
    none.
    """
    if isinstance(error, SystemExit):
        if missing := refusal_by_argparse(error):
            return f"argparse: {missing}: give each argument a default, the file is run without any"
        code = f": {clean_text(error, 100)}" if isinstance(error.code, str) else ""
        return f"it ends the program (sys.exit{code}): raise an exception where it cannot run"
    first_line = clean_text(error, 300).splitlines()[0] if str(error) else ""
    advice = (
        "; make tensors on the CPU, the judge moves them to its device"
        if _lacks_gpu(first_line)
        else ""
    )
    return f"{type(error).__name__}: {first_line}{advice}".removesuffix(": ")


def _lacks_gpu(message: str) -> bool:
    return (
        "not compiled with CUDA" in message
        or "NVIDIA driver" in message
        or "No CUDA GPUs" in message
    )


@contextlib.contextmanager
def warned_once(problem: str) -> Iterator[None]:
    """Shows a warning only if this process has not shown it for this problem: a verdict loads the
    text again for every size, and Python takes each for another module, with other lines. No
    other reference runs meanwhile.

    Python's filters stay unchanged: changing them would reset its memory of shown warnings in
    every other module.
    """
    show = warnings.showwarning

    def show_once(
        message: Warning | str, category: type[Warning], *location: Any, **location_options: Any
    ) -> None:
        key = (problem, category, str(message))
        if key not in _shown:
            _shown.append(key)
            show(message, category, *location, **location_options)

    warnings.showwarning = show_once
    try:
        yield
    finally:
        warnings.showwarning = show
