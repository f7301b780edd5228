"""One candidate on one target, once: import it, build ModelNew, run forward, with every launch compiled and none made."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from tools import wire
from tools.results import Failure, Fault, clean_text
from tools.targets import Target
from tools.untrusted import plain, pretend_gpu, stand_in, symbols
from tools.untrusted.compile_errors import at, chain
from tools.untrusted.offline_census import OfflineCensus, watch_libraries
from tools.untrusted.offline_driver import LaunchRefused, OfflineDriver, OfflineLauncher
from tools.untrusted.recorder import Broken, Recorder, first_error
from tools.untrusted.trouble import failure_of

NAME = "candidate"
_RETRIED = (Fault.IMPORT, Fault.ENTRY_POINT, Fault.LAUNCH, Fault.RUNTIME, Fault.NO_KERNEL)


@dataclass
class Attempt:
    """What one run told."""

    target: Target
    path: Path
    tell: Callable[[dict[str, Any]], None]
    tuning_seconds: float
    recorder: Recorder = field(init=False)
    census: OfflineCensus = field(init=False)
    outputs: list[Any] = field(default_factory=list)
    failure: Failure | None = None
    skipped: int = 0
    """Autotune configs that were left out for want of time."""

    def __post_init__(self) -> None:
        self.recorder, self.census = Recorder(self.target, self.tell), OfflineCensus()

    @property
    def may_need_values(self) -> bool:
        """Whether a run with values might go further."""
        return self.failure is not None and self.failure.fault in _RETRIED

    def run(self, spec: dict[str, Any], *, fake: bool) -> None:
        """Fills in the outputs or the failure."""
        fault = Fault.IMPORT
        try:
            with self._world(fake), torch.no_grad():
                self.tell({"stage": "import"})
                module = load(self.path)
                fault = Fault.ENTRY_POINT
                self.tell({"stage": "build"})
                model = _build(module, wire.restore(spec["init"], _maker(fake)))
                inputs = wire.restore(spec["inputs"], _maker(fake))
                fault = Fault.RUNTIME
                self.tell({"stage": "forward"})
                with self.census:
                    made = model(*inputs)
                self.outputs = [_described(v) for v in _flat(made)]
        except BaseException as error:
            self.failure = self._failure(error, fault)
            return
        self.failure = self._nothing_launched()

    @contextlib.contextmanager
    def _world(self, fake: bool) -> Iterator[None]:
        pretend_gpu.install(self.target)
        self._install_triton()
        with pretend_gpu.fake() if fake else stand_in.standing_in():
            yield

    def _install_triton(self) -> None:
        """This target's driver, and nothing that would measure or look into a cache of measurements."""
        import triton.testing
        from triton.runtime import driver
        from triton.runtime.autotuner import Autotuner

        offline = OfflineDriver(self.target, self._benchmarked)
        if symbols.missing():
            plain.install(self.recorder, self.target)
        else:
            _watch_compile(self.recorder)
        OfflineLauncher.noted = staticmethod(self.recorder.launched)
        driver.set_active(offline)
        triton.testing.do_bench = triton.testing.do_bench_cudagraph = offline.benchmark
        if hasattr(Autotuner, "check_disk_cache"):
            Autotuner.check_disk_cache = lambda self, key, configs, bench: bench() and False

    def _benchmarked(self, call: Callable[[], Any]) -> None:
        """A config beyond the time for tuning is left out, as if it were slow."""
        spent = sum(c.seconds for c in self.recorder.compiled.values() if c.autotuned)
        if spent > self.tuning_seconds:
            self.skipped += 1
            return
        with self.census.paused():
            self.recorder.benchmarked(call)

    def _failure(self, error: BaseException, fault: Fault) -> Failure:
        broken = next((b for b in self.recorder.broken if any(b.error is e for e in chain(error))), None)
        if broken is not None:
            return self._compile_failure(broken)
        if isinstance(error, LaunchRefused) or (fault is Fault.RUNTIME and self._before_a_launch(error)):
            fault = Fault.LAUNCH
        failure = failure_of(error, str(self.path), fault)
        return failure.with_(message=self._resources(error) or failure.message)

    def _before_a_launch(self, error: BaseException) -> bool:
        return not self.recorder.launches or _in_triton(error, self.path)

    def _resources(self, error: BaseException) -> str:
        """What a kernel asks for against what the target has; empty where the error is not about that."""
        asked: Any = next((e for e in chain(error) if type(e).__name__ == "OutOfResources"), None)
        if asked is None:
            return ""
        over = [c.kernel for c in self.recorder.compiled.values() if c.kernel.metadata.shared == asked.required]
        name = f"kernel {over[-1].metadata.name}" if over else "a kernel"
        unit = "bytes of " if "memory" in asked.name else ""
        return f"{name} needs {asked.required} {unit}{asked.name}, {self.target.name} has {asked.limit}: smaller blocks or fewer stages help"

    def _compile_failure(self, broken: Broken) -> Failure:
        """Why one kernel does not compile: Triton's own words, or the first error of its passes."""
        failure = failure_of(broken.error, str(self.path), Fault.COMPILE)
        found = first_error(broken.diagnostics, str(self.path))
        if found and failure.fault is Fault.COMPILE and type(broken.error).__name__ == "RuntimeError":
            line, column, message = found
            lines = self.path.read_text("utf-8", "replace").splitlines()
            failure = failure.with_(message=clean_text(message, 600), where=at(lines, line, column))
        return failure.with_(message=f"kernel {broken.name} does not compile: {failure.message}")

    def _nothing_launched(self) -> Failure | None:
        if self.recorder.launches:
            return None
        if self.recorder.broken:
            failure = self._compile_failure(self.recorder.broken[0])
            return failure.with_(message=f"{failure.message} (the candidate went on without it)")
        return Failure(fault=Fault.NO_KERNEL, message="no Triton kernel is launched: forward returns without one")

    def notes(self) -> list[str]:
        """What a reader should know of how this came about."""
        found = [f"autotune left a config out: {reason}" for reason in dict.fromkeys(self.recorder.tuned_away)]
        if self.skipped:
            found.append(
                f"{self.skipped} autotune configs were not compiled: over {self.tuning_seconds:g} s for all of them"
            )
        if self.recorder.launches and self.recorder.broken:
            found += [
                f"kernel {b.name} does not compile, and the candidate went on without it"
                for b in self.recorder.broken
                if b.name not in str(found)
            ]
        found += [f"{name} is not done offline ({count} times)" for name, count in pretend_gpu.ignored.items()]
        return found


def load(path: Path) -> Any:
    """The candidate's module, new."""
    spec = importlib.util.spec_from_file_location(NAME, path)
    if spec is None or spec.loader is None:
        raise ImportError("the candidate's file cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module
    watch_libraries()
    spec.loader.exec_module(module)
    return module


def _build(module: Any, arguments: Any) -> Any:
    if not isinstance(getattr(module, "ModelNew", None), type):
        raise TypeError("the candidate defines no class ModelNew")
    positional, named = arguments
    with torch.device(pretend_gpu.CUDA):
        model = module.ModelNew(*positional, **named)
    return model.to(pretend_gpu.CUDA) if isinstance(model, torch.nn.Module) else model


def _watch_compile(recorder: Recorder) -> None:
    import triton
    import triton.compiler
    import triton.compiler.compiler as compiler

    watched = recorder.compiling(compiler.compile)
    for owner in (triton, triton.compiler):
        owner.compile = watched
    if hasattr(compiler.max_shared_mem, "cache_clear"):
        compiler.max_shared_mem.cache_clear()


def _maker(fake: bool) -> Callable[[dict[str, Any]], Any]:
    def make(spec: dict[str, Any]) -> Any:
        dtype = getattr(torch, spec["dtype"])
        return pretend_gpu.fake_tensor(spec["shape"], spec["stride"], dtype) if fake else stand_in.drawn(spec, dtype)

    return make


def _in_triton(error: BaseException, path: Path) -> bool:
    """Whether it was raised below the candidate's innermost frame by Triton on the way to a launch."""
    files: list[str] = []
    trace = error.__traceback__
    while trace is not None:
        files.append(trace.tb_frame.f_code.co_filename)
        trace = trace.tb_next
    inner = files[len(files) - files[::-1].index(str(path)) :] if str(path) in files else files
    return any("triton/runtime" in f or "triton/compiler" in f or f == "<string>" for f in inner)


def _flat(tree: Any) -> list[Any]:
    if isinstance(tree, tuple | list):
        return [v for item in tree for v in _flat(item)]
    if isinstance(tree, dict):
        return [v for item in tree.values() for v in _flat(item)]
    return [tree]


def _described(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return {"other": clean_text(type(value).__name__, 60)}
    return {
        "shape": [int(n) for n in value.shape],
        "dtype": str(value.dtype).removeprefix("torch."),
        "device": value.device.type,
    }
