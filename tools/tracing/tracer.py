"""The tracer: a sandboxed process that runs a candidate's host code, once per size, on tensors
without values.

Payload: {"source", "target", "sizes": [{"spec": tools.references.input_spec.InputSpec,
"multiprocessors": n or null, "calls": n, "reuse": bool, "surroundings": [Change, ...],
"variants_seed": n or null}, ...]}. Answers: {"progress": {...}} before each step that may hang,
{"first": the answer for the first size alone} if there are further sizes, and finally {"traced":
tools.tracing.trace.Traced, "failures": [Failure or null, ...], "notes": [...]}. These are a
candidate's word: the trusted side parses them with `tools.tracing.trace.read_traced`.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from kernelwright.tools import wire
from kernelwright.tools.hardware.targets import Target, parse_target
from kernelwright.tools.nested import tensors_of
from kernelwright.tools.report import Failure, Fault
from kernelwright.tools.sandbox.channel import Channel
from kernelwright.tools.trace.trace import MAX_OUTPUTS, TRACE_VERSION, Change, output_leaves
from kernelwright.tools.tracing import deferred, recorded, slicing
from kernelwright.tools.tracing.candidate_errors import failure_of
from kernelwright.tools.tracing.candidate_module import MODULE_NAME, build, load
from kernelwright.tools.tracing.failures import CallsDiffer, LaunchesDropped, tracing_failure
from kernelwright.tools.tracing.host_code.recording import ChoiceRecorder
from kernelwright.tools.tracing.kernels import Texts
from kernelwright.tools.tracing.pretended_gpu import fake_gpu as pretend_gpu
from kernelwright.tools.tracing.pretended_gpu import helion_inputs
from kernelwright.tools.tracing.surroundings import modules, process
from kernelwright.tools.tracing.surroundings.variants import differing_variants
from kernelwright.tools.tracing.tape import Step, Tape

MAX_SECONDS_FOR_MANY_CALLS, CALLS_WHEN_SLOW = 0.5, 5
"""Seconds of two calls above which only so many calls are made."""
MAX_SECONDS_FOR_MORE_CALLS = 8.0
"""Seconds of two calls above which no more are made (a network of tens of thousands of steps)."""


def serve(channel: Channel, payload: dict[str, Any]) -> None:
    """Traces a candidate at every requested size."""
    os.environ["TRITON_DEFAULT_FP_FUSION"] = "1"
    helion_inputs.choose_default_configurations()
    tempfile.tempdir = str(Path.cwd())
    path = Path.cwd() / "candidate.py"
    path.write_text(payload["source"], "utf-8")
    tracer = Tracer(parse_target(payload["target"]), path, channel)
    channel.send(tracer.trace_all(payload["sizes"]))


def warm() -> None:
    """Traces a candidate with a single kernel in the zygote, to warm caches of torch and Triton for
    its forks."""
    from kernelwright.tools.tracing.pretended_gpu.warm_candidate import SOURCE

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "candidate.py"
        path.write_text(SOURCE)
        tensor = {"tensor": {"shape": [3, 5], "stride": [5, 1], "dtype": "float32"}}
        spec = {"init": [], "inputs": [tensor]}
        Tracer(parse_target("sm_90"), path, None).trace_all([{"spec": spec, "calls": 2}])
    sys.modules.pop(MODULE_NAME, None)


class Tracer:
    """Traces a candidate in this process."""

    def __init__(self, target: Target, path: Path, channel: Channel | None) -> None:
        self._target = target
        self._path = path
        self._channel = channel
        self._texts = Texts(str(path))
        self._tape = Tape(str(path), self._texts)
        self._history: list[Step] = []
        """Every step so far: importing, and all earlier models and calls."""
        self._recorder = ChoiceRecorder()
        """Records choices of the host code."""
        self._notes: list[str] = []
        self._launches_before = 0
        self._called: set[int] = set()
        """Steps of calls, by identity: launches of an earlier call are no part of a later trace's
        set-up."""
        self._parts: dict[int, slicing.Parts] = {}
        """Cached analysis of the history's steps."""
        self._changes: Sequence[Change] = ()  # what surrounds the calls otherwise than usual
        self._variants: list[dict[str, Any]] = []  # traces in changed surroundings
        self._memory_keys: list[tuple[Any, ...]] = []
        """Memory of each tensor on the tape, by its number."""
        self._state: dict[str, torch.Tensor] = {}
        """Parameters and buffers by name, of the model that is called."""
        self._models: dict[str, tuple[Any, list[Step]]] = {}
        """The last model built with each constructor's arguments."""

    # -------------------------------------------------------------- all sizes
    def trace_all(self, sizes: list[dict[str, Any]]) -> dict[str, Any]:
        """Returns the answer: traces, kernels, functions and failures."""
        traces: list[dict[str, Any] | None] = []
        failures: list[dict[str, Any] | None] = []
        pretend_gpu.ignored.clear()
        pretend_gpu.install(self._target)
        process.install_clock()
        deferred.install(self._tape, self._texts, self._target)
        deferred.install_graphs(self._tape)
        deferred.watch_libraries(self._tape)
        try:
            with pretend_gpu.fake(), torch.no_grad(), self._tape:
                module, broken = self._imported()
                for size in sizes:
                    trace, failure = (None, broken) if broken else self._one_size(module, size)
                    traces.append(trace)
                    failures.append(None if failure is None else failure.model_dump(mode="json"))
                    if len(traces) == 1 < len(sizes) and self._channel is not None:
                        self._channel.send({"first": self._answer(traces, failures)})
                for size, trace in zip(sizes, traces, strict=True):
                    if trace is not None and size.get("variants_seed") is not None:
                        self._trace_variants(module, size, trace)
        except BaseException as error:  # what a candidate leaves behind in torch's modes
            failure = failure_of(error, str(self._path), Fault.RUNTIME)
            failures += [failure.model_dump(mode="json")] * (len(sizes) - len(failures))
            traces += [None] * (len(sizes) - len(traces))
        return self._answer(traces, failures)

    def _answer(self, traces: list[Any], failures: list[Any]) -> dict[str, Any]:
        """Returns the results so far as a message."""
        ignored = [
            f"{name} is not done while tracing ({n} times)"
            for name, n in pretend_gpu.ignored.items()
        ]
        return {
            "traced": {
                "version": TRACE_VERSION, "traces": traces, "variants": self._variants,
                "functions": {k: f.model_dump(mode="json") for k, f in self._texts.functions.items()},
                "kernels": {k: f.model_dump(mode="json") for k, f in self._texts.kernels.items()},
            },
            "failures": failures, "host": self._recorder.outcomes_by_choice(), "notes": [*self._notes, *ignored][:20],
        }  # fmt: skip

    def _tell(self, stage: str) -> None:
        if self._channel is not None:
            self._channel.send({"progress": stage})

    def _imported(self) -> tuple[Any, Failure | None]:
        self._tell("importing the module")
        try:
            with self._tape.diverted() as steps, self._recorder.counted(True):
                module = load(self._path, self._recorder)
            self._history += steps
            if note := helion_inputs.make_sizes_symbolic():
                self._notes.append(note)
            if not isinstance(getattr(module, "ModelNew", None), type):
                return module, Failure(
                    fault=Fault.ENTRY_POINT,
                    message="TypeError: the candidate defines no class ModelNew",
                )
            return module, None
        except BaseException as error:
            return None, failure_of(error, str(self._path), Fault.IMPORT)

    # -------------------------------------------------------------- one size
    def _one_size(
        self, module: Any, size: dict[str, Any]
    ) -> tuple[dict[str, Any] | None, Failure | None]:
        fault = Fault.ENTRY_POINT
        if size.get("multiprocessors"):
            torch.cuda.get_device_properties(0).multi_processor_count = int(size["multiprocessors"])
        try:
            with self._recorder.counted(size.get("replayed", True)):
                model, building = self._model(module, size)
                state = recorded.state_tensors(model)
                numbers = self._numbers(state)
                before = list(self._history)
                fault = Fault.RUNTIME
                self._launches_before = self._tape.launches
                self._tell("running forward")
                self._state = state
                calls = self._calls_in_surroundings(model, size)
            if recorded.launches(calls[0]) > recorded.launches(
                calls[1]
            ):  # its first call works something out: another size needs a model of its own
                self._models.clear()
            return self._written(state, numbers, before, building, calls), None
        except BaseException as error:
            launched = self._tape.launches != self._launches_before
            return None, tracing_failure(error, self._path, fault, launched=launched)

    def _model(self, module: Any, size: dict[str, Any]) -> tuple[Any, list[Step]]:
        """Returns a model of this size, and the steps that built it.

        With `reuse`, the model may have been called at another size, as users do. Its buffers for
        that size's inputs are uninitialised memory by then.
        """
        form = json.dumps(size["spec"]["init"], sort_keys=True)
        if size.get("reuse") and form in self._models:
            return self._models[form]
        self._tell("building ModelNew")
        with self._tape.diverted() as building:
            model = build(
                module,
                wire.restore(size["spec"]["init"], recorded.fake),
                training=size["spec"]["training"],
            )
        self._history += building
        self._models[form] = model, building
        return model, building

    def _calls_in_surroundings(self, model: Any, size: dict[str, Any]) -> list[dict[str, Any]]:
        """Runs the calls in this size's surroundings; in the usual ones if forward raises there."""
        self._changes = tuple(map(Change, size.get("surroundings", ())))
        if self._changes:
            try:
                with process.changed(self._changes, random.Random(len(self._changes))):
                    return self._calls(model, size)
            except Exception:
                self._tell("running forward in the usual surroundings")
            finally:
                self._changes = ()
        return self._calls(model, size)

    def _trace_variants(self, module: Any, size: dict[str, Any], usual: dict[str, Any]) -> None:
        """Traces a size in changed surroundings; keeps traces that differ from the usual one."""
        self._tell("running forward in changed surroundings")
        rng = random.Random(size["variants_seed"])
        trace = partial(self._trace_changed, module, {**size, "reuse": False}, rng)
        variants, refused = differing_variants(trace, usual, rng)
        self._variants += variants
        if refused:
            self._notes.append(f"it raises where {', or where '.join(refused)}"[:300])

    def _trace_changed(
        self, module: Any, size: dict[str, Any], rng: random.Random, changes: Sequence[Change]
    ) -> dict[str, Any]:
        """Returns the trace of a new model in changed surroundings. Raises the candidate's errors."""
        self._changes = changes
        try:
            with self._recorder.counted(True):
                return self._calls_of_changed(module, size, rng)
        finally:
            self._changes = ()

    def _calls_of_changed(
        self, module: Any, size: dict[str, Any], rng: random.Random
    ) -> dict[str, Any]:
        changes = self._changes
        with process.changed(set(changes) - {Change.DEFAULT_TYPE}, rng):
            model, building = self._model(module, size)
            with self._tape.diverted() as arranging:
                model, self._state = modules.rearranged(model, changes)
            self._history += arranging
        numbers = self._numbers(self._state)
        before = list(self._history)
        with process.changed(changes, rng):
            calls = [self._call(model, self._inputs(size["spec"]["inputs"])) for _ in range(2)]
        return self._written(self._state, numbers, before, [*building, *arranging], calls)

    def _calls(self, model: Any, size: dict[str, Any]) -> list[dict[str, Any]]:
        """Makes two calls, or many: then also one on earlier tensors, and one on other tensors at
        the same addresses."""
        spec, call_count, begun = (
            size["spec"]["inputs"],
            max(2, int(size.get("calls", 2))),
            time.monotonic(),
        )
        calls = [self._call(model, self._inputs(spec)) for _ in range(2)]
        if (took := time.monotonic() - begun) > MAX_SECONDS_FOR_MANY_CALLS:
            call_count = min(
                call_count, CALLS_WHEN_SLOW if took < MAX_SECONDS_FOR_MORE_CALLS else 2
            )
        if call_count > 2:
            earlier_inputs = self._inputs(spec)
            calls += [self._call(model, earlier_inputs), self._call(model, earlier_inputs)]
            reused_addresses = self._inputs(spec)
            for tensor, before in zip(
                tensors_of(reused_addresses), tensors_of(earlier_inputs), strict=True
            ):
                pretend_gpu.lay_at(tensor, before)
            calls.append(self._call(model, reused_addresses))
        return calls + [
            self._call(model, self._inputs(spec)) for _ in range(call_count - len(calls))
        ]

    def _inputs(self, spec: Any) -> Any:
        with self._tape.diverted() as making:
            inputs = wire.restore(
                spec, lambda tensor_spec: recorded.fake(tensor_spec, self._changes)
            )
        self._history += making
        return inputs

    def _call(self, model: Any, inputs: Any) -> dict[str, Any]:
        roots = [
            self._tape.value(v)
            if isinstance(v, torch.Tensor)
            else wire.describe(v, lambda t: {"t": self._tape.number(t)})
            for v in inputs
        ]
        with self._tape.diverted() as steps:
            result = model(*inputs)
            recorded.write_back_buffers(model, self._state)
            outputs = self._tape.output(result)
        self._history += steps
        self._called.update(map(id, steps))
        return {"inputs": roots, "steps": list(steps), "outputs": outputs}

    def _written(
        self,
        state: dict[str, torch.Tensor],
        numbers: dict[str, int],
        before: list[Step],
        building: list[Step],
        calls: list[dict[str, Any]],
    ) -> dict[str, Any]:
        """Returns the trace as a message. Raises CallsDiffer if later calls differ."""
        first, second = calls[0], calls[1]
        forms = [recorded.canonical(c) for c in calls]
        same = forms[0] == forms[1]
        odd = next((i for i, form in enumerate(forms[2:], 3) if form != forms[1]), None)
        if odd is not None and recorded.launches(calls[odd - 1]) < recorded.launches(second):
            raise LaunchesDropped(
                f"call {odd} of forward launches {recorded.launches(calls[odd - 1])} kernels where call 2 "
                f"launches {recorded.launches(second)}: an answer is kept "
                "from an earlier call"
            )
        if odd is not None:
            raise CallsDiffer(
                f"call {odd} of forward asks for other things than call 2 "
                f"({recorded.call_difference(calls[1], calls[odd - 1])}): a verdict needs host code "
                "that does the same at every call"
            )
        later = None if same else second
        needed_numbers = recorded.needed_from_outside(first)
        if later is not None:
            needed_numbers |= recorded.needed_from_outside(later) - recorded.tensors_of_steps(first)
        needed_numbers -= recorded.input_tensors(first) | (
            recorded.input_tensors(later) if later else set()
        )
        random = {id(s) for s in building if recorded.is_random(s)}
        setup = slicing.needed_steps(
            before if needed_numbers or random else [],
            needed_numbers,
            self._tape.storages,
            mutates=lambda s: id(s) not in self._called and recorded.mutates(s),
            always=lambda s: id(s) in random,
            cache=self._parts,
        )
        names = self._aliases(state, numbers)
        message = {
            "inputs": first["inputs"], "later_inputs": second["inputs"] if later else (), "state": numbers,
            "setup": setup,
            "first": first["steps"], "first_outputs": first["outputs"], "later": later and later["steps"],
            "later_outputs": later and later["outputs"],
        }  # fmt: skip
        if names:
            message = {
                k: slicing.renamed(v, names) if k != "state" else v for k, v in message.items()
            }
        return message | {
            "parameters": [n for n, t in state.items() if isinstance(t, torch.nn.Parameter)],
            "shapes": {n: [int(s) for s in t.shape] for n, t in state.items()},
            "dtypes": {n: str(t.dtype).removeprefix("torch.") for n, t in state.items()},
            "forms": [
                self._form(leaf) for leaf in list(output_leaves(first["outputs"]))[:MAX_OUTPUTS]
            ],
        }

    def _form(self, leaf: object) -> dict[str, Any]:
        if not (isinstance(leaf, dict) and "t" in leaf):
            return {"dtype": "other"}
        tensor = self._tape.tensor(leaf["t"])
        dtype = str(tensor.dtype).removeprefix("torch.")
        return {
            "shape": [int(n) for n in tensor.shape],
            "dtype": dtype,
            "device": tensor.device.type,
        }

    def _numbers(self, state: dict[str, torch.Tensor]) -> dict[str, int]:
        """Returns the numbers of state tensors by name; tied weights share a number."""
        first: dict[tuple[Any, ...], int] = {}
        return {
            name: first.setdefault(recorded.memory_key(t), number) if t.numel() else number
            for name, t, number in ((name, t, self._tape.number(t)) for name, t in state.items())
        }

    def _aliases(self, state: dict[str, torch.Tensor], numbers: dict[str, int]) -> dict[int, int]:
        """Maps tensors that equal a state tensor under another number (`Parameter(w)` is a detached
        `w`) to the state's number."""
        numbers_by_memory = {
            recorded.memory_key(t): numbers[n] for n, t in state.items() if t.numel()
        }
        if not numbers_by_memory:
            return {}
        # Each tensor is looked at once: a model of hundreds of weights has thousands, traced at dozens of sizes.
        for number in range(len(self._memory_keys), len(self._tape.storages)):
            self._memory_keys.append(recorded.memory_key(self._tape.tensor(number)))
        return {
            number: numbers_by_memory[key]
            for number, key in enumerate(self._memory_keys)
            if key in numbers_by_memory and numbers_by_memory[key] != number
        }
