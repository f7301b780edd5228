"""Restores global settings of torch which a reference may change, such as
`torch.backends.cuda.matmul.allow_tf32 = True` at the top of its file: they hold for this problem
only.
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from kernelwright.program_arguments import no_program_arguments
from kernelwright.tools.numerics.seeds import generators_kept, generators_locked

DEFAULT_DEVICE = "default device"
_UNKNOWN = object()
_SETTING_WORDS = re.compile(
    r"set_|backends|determin|autocast|grad|inference|_C\b|\bget|import_module|exec|eval|vars|globals|__import|__dict"
)
"""Words contained in every text which changes a setting of torch, unless it calls code of another
file.
"""
_GETS_OF_PROBLEMS = re.compile(r"\bget_(?:init_)?inputs\b")
_IMPORTED = re.compile(r"^\s*(?:from|import)\s+(.*)", re.MULTILINE)
_PLAIN_IMPORT = re.compile(
    r"(?:torch|math|typing|__future__|functools|itertools|collections|dataclasses|random|numpy)\b[^,]*"
)
Settings = Mapping[str, Any]
"""Values by name of the setting, without unreadable settings."""


class _Setting(NamedTuple):
    name: str
    read: Callable[[], Any]
    write: Callable[[Any], Any]


class _NoOutput(io.TextIOBase):
    """Text file which discards everything written."""

    def write(self, text: str, /) -> int:
        """Returns the number of characters, like a file."""
        return len(text)


_NO_OUTPUT = _NoOutput()


class KeptSettings:
    """Context which restores torch's settings and generators afterwards, and discards printed
    text: standard output belongs to the command, whose JSON is read there.

    The block sees no program arguments. No other thread's reference runs meanwhile: most settings
    are global. A class and no generator, because a verdict enters it four hundred times and a
    generator takes twice as long.
    """

    def __init__(
        self,
        own_settings: Settings | None = None,
        *,
        python: bool = False,
        generators: bool = True,
        changes: bool = True,
    ) -> None:
        """Prepares the context. own_settings: settings inside the block. python: also keep
        Python's and numpy's generators. generators: False if the block itself keeps them.
        changes: False if the block changes no setting (`may_change_settings`).
        """
        self._own_settings = own_settings or {}
        self._looks = changes or bool(self._own_settings)
        self._generators = generators_kept(python=python) if generators else None
        self.changed: dict[str, Any] = {}
        """After the block those of `own` and the settings that it has changed: the next block is
        to be given them as `own` to go on from there.
        """

    def __enter__(self) -> KeptSettings:
        self._turn = generators_locked()
        self._turn.__enter__()
        self._arguments = no_program_arguments()
        self._arguments.__enter__()
        self._stdout, sys.stdout = sys.stdout, _NO_OUTPUT
        if self._generators is not None:
            self._generators.__enter__()
        self._before, self._modes = _now() if self._looks else [], _Modes()
        if self._own_settings:
            _put({**dict(zip(_names(), self._before, strict=True)), **self._own_settings})
        return self

    def __exit__(self, *raised: Any) -> None:
        try:
            after = _now() if self._looks else []
            if self._own_settings or after != self._before:
                named = zip(_names(), after, self._before, strict=True)
                self.changed = {
                    n: v
                    for n, v, was in named
                    if v is not _UNKNOWN and (n in self._own_settings or v != was)
                }
            self._modes.put_back()
            if after != self._before:
                _put(dict(zip(_names(), self._before, strict=True)))
        finally:
            if self._generators is not None:
                self._generators.__exit__(None, None, None)
            sys.stdout = self._stdout
            self._arguments.__exit__(None, None, None)
            self._turn.__exit__(None, None, None)


@functools.lru_cache(maxsize=256)
def may_change_settings(text: str) -> bool:
    """Whether a reference may change a setting of torch: nearly none does, and to look takes a
    twentieth of a verdict on a CPU.
    """
    if _SETTING_WORDS.search(_GETS_OF_PROBLEMS.sub("", text)):
        return True
    return not all(
        _PLAIN_IMPORT.fullmatch(line.partition(" import ")[0].strip())
        for line in _IMPORTED.findall(text)
    )


class _Modes:
    """Modes of this thread which change torch's functions, including a default device: set inside
    `with torch.device(...)`, torch itself leaves one of the two behind.
    """

    def __init__(self) -> None:
        self._stack, self._default, self._current = self._now()

    def _now(self) -> tuple[list[Any], Any, Any]:
        import torch
        from torch.overrides import _get_current_function_mode_stack
        from torch.utils import _device

        default = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
        return _get_current_function_mode_stack(), default, _device.CURRENT_DEVICE

    def put_back(self) -> None:
        """Restores this thread's modes at construction."""
        import torch
        from torch.overrides import _pop_mode, _push_mode
        from torch.utils import _device

        now, default, current = self._now()
        if not now and not self._stack and default is self._default and current is self._current:
            return
        if len(now) != len(self._stack) or any(
            a is not b for a, b in zip(now, self._stack, strict=True)
        ):
            for _ in now:
                _pop_mode()
            for mode in self._stack:
                _push_mode(mode)
        torch._GLOBAL_DEVICE_CONTEXT.device_context = self._default
        _device.CURRENT_DEVICE = self._current


@contextlib.contextmanager
def single_threaded() -> Iterator[None]:
    """Makes torch use no additional threads in this thread until the block ends.

    OpenMP stores the number for each thread, without effect on other threads.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _now() -> list[Any]:
    """Returns the values in the order of `_settings`, _UNKNOWN for a setting which torch refuses
    to read.
    """
    try:
        return [read() for read in _readers()]
    except RuntimeError:
        return [_read(setting) for setting in _settings()]


def _read(setting: _Setting) -> Any:
    try:
        return setting.read()
    except RuntimeError:
        return _UNKNOWN


def _put(values: Settings) -> None:
    """Writes the settings which differ, in the order of `_settings`: writing an earlier setting
    changes some later ones.
    """
    for setting in _settings():
        value = values.get(setting.name, _UNKNOWN)
        if value is not _UNKNOWN and _read(setting) != value:
            setting.write(value)


@functools.cache
def _readers() -> tuple[Callable[[], Any], ...]:
    return tuple(setting.read for setting in _settings())


@functools.cache
def _names() -> tuple[str, ...]:
    return tuple(setting.name for setting in _settings())


@functools.cache
def _settings() -> tuple[_Setting, ...]:
    """Yields every setting of this torch."""
    return (*_precisions(), *_libraries(), *_autocasts(), *_modes())


def _precisions() -> Iterator[_Setting]:
    """Yields the settings of products and convolutions: the older names first, which set several of the newer ones."""
    import torch

    yield _Setting(
        "matmul precision", torch.get_float32_matmul_precision, torch.set_float32_matmul_precision
    )
    yield from _in_c("cublas_allow_tf32", "cudnn_allow_tf32")
    for backend_pair in itertools.product(
        ("generic", "cuda", "mkldnn"), ("all", "matmul", "conv", "rnn")
    ):
        if backend_pair[0] != "generic" or backend_pair[1] == "all":
            yield _Setting(
                ".".join(backend_pair), functools.partial(torch._C._get_fp32_precision_getter, *backend_pair),
                functools.partial(torch._C._set_fp32_precision_setter, *backend_pair),
            )  # fmt: skip
    for name in ("fp16", "bf16"):  # what is read is one number, or two that are written together
        yield _Setting(
            f"{name} reduction", getattr(torch._C, f"_get_cublas_allow_{name}_reduced_precision_reduction"),
            functools.partial(_write_reduction, name),
        )  # fmt: skip
    yield from _in_c("cublas_allow_fp16_accumulation")


def _write_reduction(name: str, held: object) -> None:
    import torch

    write = getattr(torch._C, f"_set_cublas_allow_{name}_reduced_precision_reduction")
    write(*held) if isinstance(held, tuple) else write(held)


def _libraries() -> Iterator[_Setting]:
    """Returns settings of a library's algorithms."""
    import torch

    cudnn = torch.backends.cudnn
    cuda = torch.backends.cuda
    deterministic = torch.utils.deterministic
    yield from _in_c("cudnn_enabled", "cudnn_benchmark", "cudnn_deterministic")
    yield _of(cudnn, "benchmark_limit")
    for kind in ("flash", "mem_efficient", "math", "cudnn"):
        yield _Setting(
            f"{kind}_sdp", getattr(cuda, f"{kind}_sdp_enabled"), getattr(cuda, f"enable_{kind}_sdp")
        )
    yield _Setting(
        "deterministic", lambda: (torch.are_deterministic_algorithms_enabled(),
                                  torch.is_deterministic_algorithms_warn_only_enabled()),
        lambda held: torch.use_deterministic_algorithms(held[0], warn_only=held[1]),
    )  # fmt: skip
    yield _of(deterministic, "fill_uninitialized_memory")


def _autocasts() -> Iterator[_Setting]:
    import torch

    for device in ("cpu", "cuda"):
        yield _Setting(
            f"autocast.{device}", functools.partial(torch.is_autocast_enabled, device),
            functools.partial(torch.set_autocast_enabled, device),
        )  # fmt: skip
        yield _Setting(
            f"autocast.{device}.dtype", functools.partial(torch.get_autocast_dtype, device),
            functools.partial(torch.set_autocast_dtype, device),
        )  # fmt: skip
    yield _Setting(
        "autocast.cache", torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled
    )


def _modes() -> Iterator[_Setting]:
    """Yields the settings of new tensors, of threads, and of the generators."""
    import torch

    held = torch._GLOBAL_DEVICE_CONTEXT

    def default_device() -> Any:
        mode = getattr(held, "device_context", None)
        return None if mode is None else mode.device

    yield _Setting("dtype", torch.get_default_dtype, torch.set_default_dtype)
    yield _Setting(DEFAULT_DEVICE, default_device, torch.set_default_device)
    yield _Setting("gradients", torch.is_grad_enabled, torch.set_grad_enabled)
    yield _Setting("threads", torch.get_num_threads, torch.set_num_threads)


def _in_c(*names: str) -> Iterator[_Setting]:
    """Read and written by torch's own functions: by their attributes it takes ten times as long,
    and there are hundreds of reads in a verdict.
    """
    import torch

    for name in names:
        yield _Setting(name, getattr(torch._C, f"_get_{name}"), getattr(torch._C, f"_set_{name}"))


def _of(owner: object, name: str) -> _Setting:
    return _Setting(
        name, functools.partial(getattr, owner, name), functools.partial(setattr, owner, name)
    )
