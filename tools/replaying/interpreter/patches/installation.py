"""Turns a process into an interpreter of kernels: every change of Triton's interpreter, in the
required order.

The process is of no other use afterwards.
"""

from __future__ import annotations

import warnings
from types import ModuleType
from typing import Any

from kernelwright.tools.hardware.targets import parse_target
from kernelwright.tools.replaying.interpreter.comparisons import data_dependence
from kernelwright.tools.replaying.interpreter.needs_gpu import NotInterpreted
from kernelwright.tools.replaying.interpreter.patches import guarded_operations

TARGET = "sm_90"
"""Target reported to interpreted kernels: the default target of traces."""
_MALLOC_PARAMETERS = ((-3, 32 << 20), (-1, 64 << 20))
"""M_MMAP_THRESHOLD and M_TRIM_THRESHOLD (glibc, malloc.h)."""
_installed: list[bool] = []


def install() -> None:
    """Makes this process an interpreter, before any kernel is rebuilt. Later calls do nothing."""
    from kernelwright.tools.compiling.text import dynamic_values, vocabulary
    from kernelwright.tools.replaying.interpreter.number_formats import bfloat16 as interpreter_bf16
    from kernelwright.tools.replaying.interpreter.number_formats import float8 as interpreter_float8
    from kernelwright.tools.replaying.interpreter.open_choices import tree_reductions
    from kernelwright.tools.replaying.interpreter.patches import language_speedups, scalar_functions
    from kernelwright.tools.replaying.interpreter.patches import repairs as interpreter_repairs
    from kernelwright.tools.replaying.interpreter.patches.libdevice import provide_libdevice
    from kernelwright.tools.replaying.interpreter.recording.watched_language import recorded

    if _installed:
        return
    _installed.append(True)
    _keep_freed_memory()
    warnings.simplefilter("ignore")  # of NumPy, at numbers that are a candidate's own
    for module in vocabulary.MODULES:
        _ask_once(vocabulary, module)
    vocabulary.value_attributes()
    vocabulary.dtypes()
    for change in interpreter_repairs.REPAIRS:
        change()
    interpreter_bf16.install()
    interpreter_float8.install()
    for change in (*language_speedups.LANGUAGE_SPEEDUPS, *interpreter_repairs.INTERPRETER_SPEEDUPS):
        change()
    language_speedups.call_builtins_at_once()
    language_speedups.call_extra_builtins(
        language_speedups.extra_modules(vocabulary.MODULES - vocabulary.LIBDEVICE)
    )
    provide_libdevice()
    tree_reductions.install()
    scalar_functions.install()
    dynamic_values.times_of_loop = recorded("times_of_loop", dynamic_values.times_of_loop)
    interpreter_bf16.install_reductions()
    guarded_operations.install()
    _refuse_what_needs_a_gpu()
    data_dependence.install()
    pretend_to_compile_for(TARGET)


def _keep_freed_memory() -> None:
    """Makes malloc reuse freed memory for arrays of some hundred kilobytes instead of mapping and
    clearing new pages, which takes longer than the arithmetic. Does nothing without the GNU C
    library.
    """
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter, value in _MALLOC_PARAMETERS:
            mallopt(parameter, value)


def rewrite_device_functions() -> None:
    """Reads and rewrites Triton's own device functions, as `tl.sum`, which each process would do
    at its first use of each.
    """
    from triton.language import core, math, random, standard
    from triton.runtime.interpreter import InterpretedFunction

    for module in (core, math, random, standard):
        for function in list(vars(module).values()):
            if isinstance(function, InterpretedFunction):
                function.rewrite()


def _ask_once(vocabulary: ModuleType, module: str) -> None:
    """Caches the names which a kernel may use of a module, before the interpreter patches the
    module.
    """
    try:
        vocabulary.members(module)
    except ImportError:
        return


def pretend_to_compile_for(target: str) -> None:
    """Reports `target` to kernels which ask for it (`tl.target_info.is_cuda()`), as the compiler
    does: a kernel with another answer here would differ from the compiled kernel.
    """
    from triton.language import target_info

    gpu_target = parse_target(target).gpu_target()
    target_info.current_target = lambda: gpu_target


def _refuse_what_needs_a_gpu() -> None:
    from triton.runtime import interpreter

    def refuse(operation: str) -> Any:
        def call(self: Any, *_: Any, **__: Any) -> Any:
            raise NotInterpreted(f"{operation} is not interpreted")

        return call

    builder = interpreter.InterpreterBuilder
    builder.create_inline_asm = refuse("inline assembly")
    builder.create_extern_elementwise = refuse("a function of an external library")
    builder.__getattr__ = _missing


def _missing(self: Any, name: str) -> Any:
    """Raises NotInterpreted for an operation missing in the interpreter's builder, which needs a
    GPU.
    """
    if name.startswith(("create_", "get_")):
        raise NotInterpreted(f"{name.partition('_')[2].replace('_', ' ')} is not interpreted")
    raise AttributeError(name)
