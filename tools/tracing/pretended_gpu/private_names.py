"""Lists the private names of Triton and torch used by offline compilation, and checks for them in
this version."""

from __future__ import annotations

import importlib
from typing import Any

JIT: tuple[tuple[str, str], ...] = (
    ("triton.compiler", "compile"),
    ("triton.compiler.compiler", "CompiledKernel._init_handles"),
    ("triton.compiler.compiler", "max_shared_mem"),
    ("triton.runtime.jit", "JITFunction.create_binder"),
    ("triton.runtime.jit", "JITFunction.device_caches"),
    ("triton.runtime.driver", "set_active"),
)
"""Required for compiling a launch as the JIT would; without them, `plain` mode.

`device_caches` is created by __init__, whose code is searched for the name.
"""


def find(module: str, path: str) -> Any | None:
    """Returns the object; None if the module or name does not exist."""
    try:
        value: Any = importlib.import_module(module)
    except ImportError:
        return None
    for part in path.split("."):
        value = getattr(value, part, None)
        if value is None:
            return None
    return value


def missing() -> tuple[str, ...]:
    """Returns the names of JIT missing in this Triton; empty: launches compile with their true
    specialisation."""
    from triton.runtime import driver as configured

    gone = []
    for module, path in JIT:
        if path == "set_active":
            target: Any = getattr(configured, "set_active", None)
        elif path.endswith(".device_caches"):
            constructor = find(module, "JITFunction.__init__")
            target = constructor is not None and "device_caches" in constructor.__code__.co_names
        else:
            target = find(module, path)
        if not target:
            gone.append(f"{module}.{path}")
    return tuple(gone)
