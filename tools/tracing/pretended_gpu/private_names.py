"""Every private name of Triton and torch that the offline compile leans on, in one place, and whether this version
has it.
"""

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
"""Without one of these a launch cannot be compiled as the JIT would: `plain` mode.

`device_caches` is made by __init__ and is looked for in its text.
"""

OPTIONAL: tuple[tuple[str, str], ...] = (
    ("triton.runtime.autotuner", "Autotuner.check_disk_cache"),
    ("triton.runtime._allocation", "_allocator"),
    ("triton.runtime.cache", "triton_key"),
    ("torch._subclasses.fake_tensor", "init_gpu_context"),
    ("torch._C", "_ensureCUDADeviceGuardSet"),
)
"""Each is used only where it is there."""


def find(module: str, path: str) -> Any | None:
    """The object, or None where the module or the name is gone."""
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
    """The names of JIT that this Triton lacks: empty means that launches compile with their true specialisation."""
    from triton.runtime import driver as configured

    gone = []
    for module, path in JIT:
        if path == "set_active":
            found: Any = getattr(configured, "set_active", None)
        elif path.endswith(".device_caches"):
            made = find(module, "JITFunction.__init__")
            found = made is not None and "device_caches" in made.__code__.co_names
        else:
            found = find(module, path)
        if not found:
            gone.append(f"{module}.{path}")
    return tuple(gone)
