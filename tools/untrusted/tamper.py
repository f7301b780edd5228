"""Watches a candidate's process for what no kernel needs: patched libraries, walks through the interpreter's memory, other processes.

A second line of defence: expected outputs, seed, comparison and verdict are in another process whatever happens here.
"""

from __future__ import annotations

import builtins
import importlib
import sys
import types
from typing import Any

from tools.results import Cheat

WATCHED = {
    "gc.get_objects": Cheat.TAMPER, "gc.get_referrers": Cheat.TAMPER, "gc.get_referents": Cheat.TAMPER, "sys._getframe": Cheat.TAMPER,
    "sys._current_frames": Cheat.TAMPER, "sys.settrace": Cheat.TAMPER, "sys.setprofile": Cheat.TAMPER, "sys.addaudithook": Cheat.TAMPER,
    "ctypes.dlopen": Cheat.ESCAPE, "ctypes.dlsym": Cheat.ESCAPE, "ctypes.string_at": Cheat.ESCAPE, "ctypes.call_function": Cheat.ESCAPE, "ctypes.addressof": Cheat.ESCAPE, "ctypes.cdata": Cheat.ESCAPE, "code.__new__": Cheat.TAMPER,
    "subprocess.Popen": Cheat.ESCAPE, "os.system": Cheat.ESCAPE, "os.exec": Cheat.ESCAPE, "os.fork": Cheat.ESCAPE, "os.forkpty": Cheat.ESCAPE, "os.posix_spawn": Cheat.ESCAPE,
    "os.kill": Cheat.ESCAPE, "os.killpg": Cheat.ESCAPE, "socket.connect": Cheat.ESCAPE, "socket.bind": Cheat.ESCAPE, "socket.__new__": Cheat.ESCAPE,
    "_thread.start_new_thread": Cheat.CLOCK, "_thread.start_joinable_thread": Cheat.CLOCK,
}  # fmt: skip

_THROUGH = (
    "inspect.py",
    "traceback.py",
    "threading.py",
    "subprocess.py",
    "socket.py",
    "os.py",
    "ctypes/__init__.py",
    "concurrent/futures/thread.py",
    "multiprocessing/",
)
"""Standard modules that only pass a call on: what counts is who called them."""

_GUARDED = (
    "builtins", "time", "os", "json", "struct", "socket", "math", "threading", "_thread", "inspect", "numpy", "torch", "torch.cuda", "torch.nn", "torch.nn.functional", "torch.nn.modules.module", "torch.utils._python_dispatch",
    "torch.overrides", "torch.testing", "torch.random", "torch.autograd", "torch._C", "torch.cuda.streams", "triton", "triton.runtime.jit", "triton.runtime.autotuner",
    "triton.runtime.interpreter", "triton.testing", "triton.compiler.compiler",
    "tools.untrusted.serve", "tools.untrusted.libdevice", "tools.untrusted.launches", "tools.untrusted.watched", "tools.untrusted.tamper", "tools.untrusted.census", "tools.sandbox.channel",
)  # fmt: skip
_GUARDED_CLASSES = (
    "torch:Tensor", "torch._C:TensorBase", "torch.nn:Module", "torch.nn:Parameter", "torch.cuda:Event", "torch.cuda:Stream", "torch.utils._python_dispatch:TorchDispatchMode", "torch:Generator",
    "triton.runtime.jit:JITFunction", "triton.runtime.jit:KernelInterface", "triton.runtime.autotuner:Autotuner", "triton.runtime.interpreter:InterpretedFunction", "triton.runtime.interpreter:GridExecutor",
    "triton.runtime.interpreter:InterpreterBuilder", "triton.compiler.compiler:CompiledKernel",
    "tools.untrusted.launches:Launches", "tools.untrusted.watched:Watched", "tools.sandbox.channel:Channel",
)  # fmt: skip


TRAPPED = {
    "torch._C": ("_get_dispatch_stack_at", "_len_torch_dispatch_stack", "_pop_torch_dispatch_stack", "_push_on_torch_dispatch_stack", "_get_dispatch_mode", "_set_dispatch_mode", "_unset_dispatch_mode", "_DisableTorchDispatch", "_ExcludeDispatchKeyGuard", "_IncludeDispatchKeyGuard", "_ForceDispatchKeyGuard", "_dispatch_tls_set_dispatch_key_excluded", "_dispatch_tls_set_dispatch_key_included", "_get_function_stack_at", "_pop_torch_function_stack", "_push_on_torch_function_stack", "_len_torch_function_stack", "DisableTorchFunction", "DisableTorchFunctionSubclass", "_EnableTorchFunction", "_to_dlpack", "_to_dlpack_versioned"),
    "torch.utils.dlpack": ("to_dlpack",),
    "torch": ("to_dlpack",),
    "torch.utils._python_dispatch": ("_disable_current_modes", "_pop_mode", "_pop_mode_temporarily", "_push_mode", "_get_current_dispatch_mode", "_get_current_dispatch_mode_stack", "_disable_infra_mode", "is_in_torch_dispatch_mode"),
    "torch.overrides": ("_pop_mode", "_push_mode", "_pop_mode_temporarily", "_get_current_function_mode", "_get_current_function_mode_stack"),
}  # fmt: skip
"""Ways to the modes that watch. torch's own modules took theirs before; a candidate that asks finds these."""


class Watch:
    """Audit hook and snapshots. `violations` fills while the candidate runs."""

    def __init__(self) -> None:
        self.violations: list[tuple[str, str]] = []
        self._armed = False
        self._path = ""
        self._before: dict[str, dict[str, Any]] = {}

    def arm(self, path: str) -> None:
        """From now on the file at `path` runs. Cannot be undone."""
        self._path = path
        self._before = {name: _callables(thing) for name, thing in _guarded()}
        self._armed = True
        sys.addaudithook(self._audit)

    def trap(self) -> None:
        """Puts the traps up. Before `arm`."""
        for module_name, names in TRAPPED.items():
            module = importlib.import_module(module_name)
            for name in names:
                if hasattr(module, name):
                    setattr(module, name, self._trapped(getattr(module, name), f"{module_name}.{name}"))

    def _trapped(self, original: Any, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._armed and len(self.violations) < 32 and self._from_candidate():
                self.violations.append((Cheat.TAMPER.value, name))
            return original(*args, **kwargs)

        return call

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if self._armed and event in WATCHED and len(self.violations) < 32 and self._from_candidate():
            self.violations.append((WATCHED[event].value, event))

    def _from_candidate(self) -> bool:
        """Whether the nearest frame that does more than pass the call on is the candidate's, or has no file at all (exec)."""
        self._armed = False
        try:
            frame: types.FrameType | None = sys._getframe(2)
            while frame is not None and frame.f_code.co_filename.endswith(_THROUGH[:-1]):
                frame = frame.f_back
            return frame is not None and (
                frame.f_code.co_filename == self._path
                or (frame.f_code.co_filename.startswith("<") and not frame.f_code.co_filename.startswith("<frozen"))
            )
        finally:
            self._armed = True

    def patched(self) -> list[tuple[str, str]]:
        """What was replaced since `arm`: (cheat, name)."""
        found = []
        for name, thing in _guarded():
            now = _callables(thing)
            for key, value in self._before.get(name, {}).items():
                if now.get(key) is not value:
                    found.append((Cheat.TAMPER.value, f"{name}.{key}"))
        return found[:32]


def _guarded() -> list[tuple[str, Any]]:
    things: list[tuple[str, Any]] = [("builtins", builtins)]
    for name in _GUARDED[1:]:
        if (module := sys.modules.get(name)) is not None:
            things.append((name, module))
    for text in _GUARDED_CLASSES:
        name, _, cls = text.partition(":")
        if (module := sys.modules.get(name)) is not None and hasattr(module, cls):
            things.append((text, getattr(module, cls)))
    return things


def _callables(thing: Any) -> dict[str, Any]:
    """Functions, classes, descriptors and submodules held by a module or class: what a patch replaces. Plain state may change."""
    return {
        k: v
        for k, v in list(vars(thing).items())
        if callable(v) or isinstance(v, property | staticmethod | classmethod | types.ModuleType)
    }


def preload() -> None:
    """Imports what is guarded, so that the snapshot sees it."""
    for name in _GUARDED:
        try:
            importlib.import_module(name)
        except ImportError:
            continue
