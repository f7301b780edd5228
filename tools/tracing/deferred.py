"""Defers compilation of kernels until their binary is inspected, and records launches on the tape.

Runs in a candidate's process. `triton.compile` is replaced; Triton's `JITFunction.run` is
unchanged, so that it binds and specialises arguments, evaluates the grid and calls hooks as on a
GPU, in every version of Triton.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from kernelwright.tools.tracing.kernels import Texts, differing
from kernelwright.tools.tracing.pretended_gpu.offline_driver import (
    OfflineDriver,
    OfflineLauncher,
    check_arguments,
    check_grid,
)
from kernelwright.tools.tracing.tape import Step, Tape, TooLong

MAX_ALTERNATIVES = 256
"""Maximum number of configurations of an autotuned launch, after pruning: all are recorded and
checked."""


class Deferred:
    """Stand-in for Triton's CompiledKernel.

    Access to anything but launches (registers, assembly) compiles the kernel, once.
    """

    def __init__(
        self,
        src: Any,
        options: dict[str, Any],
        tape: Tape,
        texts: Texts,
        compile_now: Callable[[], Any],
    ) -> None:
        self.src = src
        self.hash = id(self)
        self.function = self.module = 1
        self.packed_metadata = None
        self._options = options
        self._tape = tape
        self._texts = texts
        self._compile_now = compile_now
        self._compiled: Any = None
        self._key: str | None = None

    def launch_metadata(self, grid: object, stream: object, *args: Any) -> None:
        """Returns None: no hook is called for a launch recorded on the tape."""

    def run(
        self,
        x: object,
        y: object,
        z: object,
        stream: object,
        function: object,
        packed: object,
        launch: object,
        enter: object,
        leave: object,
        *args: Any,
    ) -> None:
        """Launches with the signature of Triton's launcher, from 3.6 to 3.9."""
        self._launch((x, y, z), args)

    def _launch(self, grid: tuple[Any, ...], args: tuple[Any, ...]) -> None:
        names = list(self.src.signature)
        size = check_grid(grid, self.src.fn.fn.__name__)
        check_arguments(tuple(names), args, self.src.fn.fn.__name__)
        if self._key is None:
            self._key = self._texts.kernel(self.src, self._options)
        arguments = {
            n: v for n, v in zip(names, args, strict=True) if self.src.signature[n] != "constexpr"
        }
        if min(size) > 0:
            self._tape.launched(self._key, size, arguments)

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        def runner(*args: Any, stream: Any = None) -> None:
            self._launch((*tuple(grid), 1, 1)[:3], args)

        return runner

    def _init_handles(self) -> None:
        self._real()._init_handles()

    def _real(self) -> Any:
        if self._compiled is None:
            self._compiled = self._compile_now()
        return self._compiled

    def __getattr__(self, name: str) -> Any:
        if (
            name.startswith("__") or name == "result"
        ):  # Triton 3.6 asks whether this is a compilation under way
            raise AttributeError(name)
        real = self._real()
        if name in ("n_regs", "n_spills", "n_max_threads"):
            real._init_handles()
        return getattr(real, name)


def install(tape: Tape, texts: Texts, target: Any) -> None:
    """Installs the target's stub driver, deferred compilation, and autotuning that records every
    configuration."""
    import triton.testing
    from triton.runtime import driver

    offline = OfflineDriver(target, lambda call: _run_unrecorded(tape, call))
    driver.set_active(offline)
    OfflineLauncher.noted = staticmethod(lambda metadata, grid, args: None)
    triton.testing.do_bench = triton.testing.do_bench_cudagraph = offline.benchmark
    _defer_compilation(tape, texts, target)
    _write_configurations(tape)


def _run_unrecorded(tape: Tape, call: Callable[[], Any]) -> None:
    """Runs a benchmark by the candidate once, without recording it."""
    with tape.diverted():
        call()


def _defer_compilation(tape: Tape, texts: Texts, target: Any) -> None:
    import triton
    import triton.compiler
    import triton.compiler.compiler as compiler
    from triton.compiler.compiler import make_backend

    original = compiler.compile
    gpu = target.gpu_target()
    defaults = dict(make_backend(gpu).parse_options({}).__dict__)

    def compile(src: Any, target: Any = None, options: Any = None, **more: Any) -> Any:
        if not hasattr(src, "fn"):
            return original(src, target=target, options=options, **more)
        explicit_options = dict(options or {})
        with contextlib.suppress(
            Exception
        ):  # what the compiler will refuse, it refuses in its own words
            # Notes the globals that the kernel reads: Triton refuses a launch once one has changed.
            src.fn.cache_key  # noqa: B018
        return Deferred(
            src,
            differing(explicit_options, defaults),
            tape,
            texts,
            lambda: original(src, target=gpu, options=explicit_options),
        )

    for owner in (triton, triton.compiler, compiler):
        owner.compile = compile
    if hasattr(compiler.max_shared_mem, "cache_clear"):
        compiler.max_shared_mem.cache_clear()


def _write_configurations(tape: Tape) -> None:
    from triton.runtime.autotuner import Autotuner

    Autotuner.run = lambda self, *args, **kwargs: _launch_autotuned(self, tape, args, kwargs)


def _launch_autotuned(tuner: Any, tape: Tape, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Records an autotuned launch: the steps of each configuration, as alternatives.

    Like Triton, resets tensors only before the first launch of a key.
    """
    tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
    key = _key(tuner, kwargs)
    first = key not in tuner.cache
    configs = (
        list(tuner.prune_configs(kwargs))
        if first and len(tuner.configs) > 1
        else list(tuner.configs)
    )
    if first:
        tuner.__dict__.setdefault("_written", {})[key] = configs
        if len(configs) > 1:
            tuner.pre_hook({**tuner.nargs, **kwargs, **configs[0].all_kwargs()}, reset_only=True)
    configs = tuner.__dict__.get("_written", {}).get(key, configs)
    done: list[tuple[list[Step], str, Any]] = []
    trouble: Exception | None = None
    if len(configs) > MAX_ALTERNATIVES:
        raise TooLong(
            f"{len(configs)} configurations of one autotuned launch: a verdict checks each of them, and at most "
            f"{MAX_ALTERNATIVES}"
        )
    for config in configs:
        with tape.diverted() as steps:
            try:
                if config.pre_hook is not None:
                    config.pre_hook({**tuner.nargs, **kwargs, **config.all_kwargs()})
                result = tuner.fn.run(*args, **kwargs, **config.all_kwargs())
            except (
                Exception
            ) as error:  # a configuration that this target or these arguments do not allow
                trouble = error
                continue
        done.append((steps, str(config), (config, result)))
    if not done:
        raise trouble or RuntimeError("no configuration is left after pruning")
    tuner.best_config, result = done[0][2]
    tuner.cache[key] = tuner.best_config
    tuner.nargs = None
    if len(done) == 1:
        tape.steps.extend(done[0][0])
    else:
        tape.choice(
            tuner.base_fn.__name__, [steps for steps, _, _ in done], [label for _, label, _ in done]
        )
    return result


def _key(tuner: Any, kwargs: dict[str, Any]) -> tuple[Any, ...]:
    arguments = {**tuner.nargs, **kwargs}
    named_arguments = {k: v for k, v in arguments.items() if k in tuner.arg_names}
    key = [named_arguments[k] for k in tuner.keys if k in named_arguments]
    key += [str(v.dtype) for v in named_arguments.values() if hasattr(v, "dtype")]
    return tuple(map(str, key))


def watch_libraries(tape: Tape) -> None:
    """Makes the tape record inside operators that the candidate registers: `custom_op`,
    `triton_op`, `Library.impl`."""
    import torch

    for name in ("custom_op", "triton_op"):
        if (original := getattr(torch.library, name, None)) is not None:
            setattr(torch.library, name, _remember_operators(original, tape))
    impl = torch.library.Library.impl

    def remember(self: Any, op_name: Any, fn: Any, dispatch_key: str = "", **options: Any) -> Any:
        if (
            self.ns not in ("aten", "prims")
            and isinstance(op_name, str)
            and dispatch_key not in ("Meta", "Autograd", "AutogradCUDA")
        ):
            tape.candidate_operators.setdefault(
                op_name if "::" in op_name else f"{self.ns}::{op_name}", fn
            )
        return impl(self, op_name, fn, dispatch_key, **options)

    torch.library.Library.impl = remember  # type: ignore[method-assign]


def _remember_operators(original: Any, tape: Tape) -> Any:
    def register(name: str, fn: Any = None, /, **options: Any) -> Any:
        def decorate(function: object) -> Any:
            operator = original(name, function, **options)
            tape.candidate_operators[name] = function
            return operator

        return decorate if fn is None else decorate(fn)

    return register


class PretendedGraph:
    """Stand-in for torch.cuda.CUDAGraph: steps recorded during capture are recorded again at every
    replay."""

    tape: Tape
    """Set once per process, before the candidate's source is read."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._steps: list[Step] = []
        self._held: Any = None

    def capture_begin(self, *_: Any, **__: Any) -> None:
        """Directs steps to the graph's own list."""
        self._held = self.tape.diverted()
        self._steps = self._held.__enter__()

    def capture_end(self) -> None:
        """Directs steps to the tape again."""
        if self._held is not None:
            self._held.__exit__(None, None, None)
            self._held = None

    def replay(self) -> None:
        """Appends the captured steps to the tape."""
        self.tape.steps.extend(self._steps)

    def reset(self) -> None:
        """Drops the captured steps."""
        self._steps = []

    def pool(self) -> tuple[int, int]:
        """Returns a handle like torch.cuda.graph_pool_handle's."""
        return (0, 0)


class Capture(contextlib.AbstractContextManager[None]):
    """Stand-in for the context manager torch.cuda.graph."""

    def __init__(self, cuda_graph: PretendedGraph, *_: Any, **__: Any) -> None:
        self._graph = cuda_graph

    def __enter__(self) -> None:
        self._graph.capture_begin()

    def __exit__(self, *_: object) -> None:
        self._graph.capture_end()


def install_graphs(tape: Tape) -> None:
    """Replaces torch's graph classes, once per process, before the candidate's source is read."""
    import torch

    PretendedGraph.tape = tape
    replaced = {"CUDAGraph": PretendedGraph, "graph": Capture, "graph_pool_handle": lambda: (0, 0)}
    for name, stand_in in replaced.items():
        setattr(torch.cuda, name, stand_in)
