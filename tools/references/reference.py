"""The problem, alive: its module, its models in both precisions, its inputs. Only in the trusted process.

The reference is the user's own text and is trusted; it never shares a process or a namespace with a candidate.
"""

from __future__ import annotations

import contextlib
import hashlib
import linecache
import sys
import threading
import types
import warnings
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from kernelwright.device_mapping import cuda_mapped_to
from kernelwright.program_arguments import refusal_by_argparse
from kernelwright.source_lines import place_of_error
from kernelwright.tools.nested import Form, leaf_names, put_together, take_apart
from kernelwright.tools.numerics.seeds import bounds_are_drawn, seeded, stable_sorts
from kernelwright.tools.parsing import code_of
from kernelwright.tools.problem import Problem, ProblemError, check_form
from kernelwright.tools.references.arithmetic import draws_in_float32, widen_attributes
from kernelwright.tools.references.torch_settings import (
    DEFAULT_DEVICE,
    KeptSettings,
    may_change_settings,
)
from kernelwright.tools.report import clean_text
from kernelwright.tools.trace.forms_of_outputs import flatten, paths

Made = TypeVar("Made")

_WIDENED = "_made_by_double"
_CALLS = "num_batches_tracked"
"""The buffer in which a batch norm counts its calls in training."""
MAX_REMEMBERED_MODULES = 512
_made: deque[tuple[str, str]] = deque()
"""Names and files of modules, in the order in which they were made."""
_remembering = threading.Lock()
_shown: deque[tuple[str, type[Warning], str]] = deque(maxlen=1024)
"""Problem, category and text of the last warnings of references that were shown."""


class Reference:
    """One problem on one device. Raises ProblemError, with the line, where the reference itself fails."""

    def __init__(self, problem: Problem, device: str) -> None:
        check_form(problem.source)
        self.problem, self.device = problem, device
        self.changing: frozenset[str] | None = None
        """Names of the buffers that forward changes; None until the first run has told."""
        self.updated: tuple[str, ...] = ()
        """Those of them that keep their shape and type, in order: what they hold after a call is part of the answer."""
        self.sorts: bool | None = False
        """Whether forward sorts, which leaves the order of equal numbers open: its sorts are stable then. None: until
        its operators are counted, sorts are stable.
        """
        self._form: Form = None
        """The nesting of the arguments of forward in the last draw; None before the first."""
        self.paths: list[str] = []
        """The place of each output among nested tuples and dicts, in the last run."""
        self._settings: dict[str, Any] = {}
        self._python = (
            "random" in problem.source
        )  # no text names Python's generator or numpy's without this word
        self._changes_settings = may_change_settings(problem.source)
        with self.settings(), self._trouble("is imported"):
            self._module = _module(problem)

    @contextlib.contextmanager
    def _trouble(self, when: str) -> Iterator[None]:
        """Makes one line that names the place of what the reference raises, and shows each of its warnings once."""
        import torch

        try:
            with _warned_once(self.problem.name):
                yield
        except torch.cuda.OutOfMemoryError:
            raise
        except (Exception, SystemExit) as error:
            place = (
                place_of_error(error, self.problem.source, _file(self.problem))
                or f" when it {when}"
            )
            raise ProblemError(
                f"the reference {self.problem.name} fails{place}: {_described(error)}"
            ) from error

    @contextlib.contextmanager
    def settings(self, *, on_device: bool = False) -> Iterator[None]:
        """What this reference has set for all of torch (precisions, default type and device, threads) holds until the
        block ends, as in a process of its own; then everything is what it was. No other reference runs meanwhile.

        on_device: the block itself says on which device tensors are made, so that no default device is needed. torch
        does not bear a new one inside both.
        """
        with (
            cuda_mapped_to(self.device, self.problem.source),
            self._kept(on_device=on_device) as kept,
        ):
            yield
        self._settings |= kept.changed

    def _kept(self, *, on_device: bool = False, generators: bool = True) -> KeptSettings:
        held = (
            {n: v for n, v in self._settings.items() if n != DEFAULT_DEVICE}
            if on_device
            else self._settings
        )
        return KeptSettings(
            held, python=self._python, generators=generators, changes=self._changes_settings
        )

    @contextlib.contextmanager
    def _seeded(self, seed: int, *, on_device: bool = False) -> Iterator[None]:
        """Runs a block in the reference's settings with the generators set to `seed`. Without data nothing is drawn."""
        draws = self.device != "meta"
        mapped = cuda_mapped_to(self.device, self.problem.source)
        here = self._kept(on_device=on_device, generators=not draws)
        with (
            mapped,
            here as kept,
            seeded(seed, python=self._python) if draws else contextlib.nullcontext(),
        ):
            yield
        self._settings |= kept.changed

    def init_arguments(self) -> list[Any]:
        """Returns the positional arguments of the models. Raises ProblemError where they are no list."""
        with self.settings(), self._trouble("gives get_init_inputs()"):
            return _listed(self._module.get_init_inputs(), "get_init_inputs")

    def model(self, seed: int) -> Any:
        """A fresh model, its weights drawn from `seed` on the device, in training mode as KernelBench leaves it."""
        import torch

        arguments = self.init_arguments()

        def built(device: str) -> Any:
            building = self._trouble(
                "builds Model"
            )  # what it computes of its weights has no history, and is copied
            with (
                self._seeded(seed, on_device=True),
                building,
                torch.device(device),
                torch.no_grad(),
            ):
                model = self._module.Model(*arguments)
                return _moved(
                    model if device == self.device else move_attributes(model, self.device),
                    self.device,
                )

        return self._on_device_or_host(built)

    def _on_device_or_host(self, make: Callable[[str], Made]) -> Made:
        """What is made on the device; on the CPU, to be moved, where the problem draws from a generator of the CPU."""
        try:
            return make(self.device)
        except ProblemError as error:
            if self.device in ("cpu", "meta") or "device type for generator" not in str(error):
                raise
        return make("cpu")

    def inputs(self, seed: int) -> list[Any]:
        """Draws the inputs from get_inputs() on the device, without gradients: only forward is judged. Tensors
        inside of lists, tuples and dictionaries are taken out: `arguments` puts them back.
        """
        import torch

        def drawn_on(device: str) -> list[Any]:
            drawing = self._trouble("gives get_inputs()")
            with (
                self._seeded(seed, on_device=True),
                drawing,
                torch.device(device),
                bounds_are_drawn(self.device),
            ):
                drawn, self._form = take_apart(_listed(self._module.get_inputs(), "get_inputs"))
                return [
                    v.detach().to(self.device) if isinstance(v, torch.Tensor) else v for v in drawn
                ]

        there = self._on_device_or_host(drawn_on)
        for value, name in zip(there, self.input_names, strict=True):
            if not isinstance(value, torch.Tensor) and any(
                isinstance(leaf, torch.Tensor) for leaf in flatten(value)
            ):
                raise ProblemError(
                    f"the reference {self.problem.name} gives tensors inside a {type(value).__name__} (input {name}): "
                    "use lists, tuples, and dictionaries with texts as keys"
                )
        return there

    def arguments(self, inputs: Sequence[Any]) -> list[Any]:
        """The arguments of forward that hold these inputs, nested as get_inputs() gave them."""
        return list(inputs) if self._form is None else put_together(self._form, inputs)

    @property
    def input_names(self) -> list[str]:
        """Names each input by its place among the arguments, `0[1]` inside of one."""
        return [] if self._form is None else leaf_names(self._form)

    def run(
        self, model: Any, inputs: list[Any], rng: int, left: list[Any] | None = None
    ) -> list[Any]:
        """The outputs, flat, with the generators set to `rng` first: live dropout then falls alike in both models.

        Buffers that forward changes (running statistics, a cache) are afterwards what they were: a call is judged on
        the state that it begins with, however many there were before it.

        left: gets what the call left in the buffers of `updated`.
        """
        import torch

        left = [] if left is None else left
        widening = (
            draws_in_float32() if getattr(model, _WIDENED, False) else contextlib.nullcontext()
        )
        ties = contextlib.nullcontext() if self.sorts is False else stable_sorts()
        with (
            self._seeded(rng),
            self._trouble("runs"),
            torch.no_grad(),
            widening,
            ties,
            self._buffers_kept(model, left),
        ):
            made = model(*self.arguments(inputs))
            self.paths = paths(made)
            return flatten(made)

    @contextlib.contextmanager
    def _buffers_kept(self, model: Any, left: list[Any]) -> Iterator[None]:
        """Forward works on copies of the buffers that it changes; the first run finds out which those are. Without
        data there is nothing to keep, and copies would be counted as work.
        """
        if self.device == "meta":
            yield
            return
        named = model.named_buffers(remove_duplicate=False)
        held = {n: b for n, b in named if self.changing is None or n in self.changing}
        copies: dict[int, Any] = {}
        for name, buffer in held.items():
            _put_buffer(model, name, copies.setdefault(id(buffer), buffer.clone()))
        now: dict[str, Any] = {}
        try:
            yield
            now = {n: b for n, b in model.named_buffers(remove_duplicate=False) if n in held}
        finally:
            for name, buffer in held.items():
                _put_buffer(model, name, buffer)
        if self.changing is None:
            self.changing = _written(held, now)
            self.updated = tuple(
                n for n in sorted(self.changing) if _of_one_form(now.get(n), held[n])
            )
        left += [now[n].detach() if n in now else None for n in self.updated]


def _listed(arguments: Any, function: str) -> list[Any]:
    """Returns the arguments that a function of the reference gives. Raises TypeError for another form than a list:
    agent/problems/forms_of_users brings every other form into this one.
    """
    if not isinstance(arguments, list | tuple):
        raise TypeError(
            f"{function} gives a {type(arguments).__name__}: return a list of the arguments in their order"
        )
    return list(arguments)


class BuffersAsTheyWere:
    """The contents of a model's buffers at the time of construction, to restore after calls outside of a verdict."""

    def __init__(self, model: Any, names: Collection[str]) -> None:
        """names: the buffers that forward changes, as `Reference.changing`."""
        self._model = model
        named = model.named_buffers(remove_duplicate=False)
        self._held = [(n, b, b.clone()) for n, b in named if n in names]

    def put_back(self) -> None:
        """Restores the buffers' contents in the same tensors."""
        for name, buffer, copy in self._held:
            buffer.copy_(copy)
            _put_buffer(self._model, name, buffer)


@contextlib.contextmanager
def _warned_once(problem: str) -> Iterator[None]:
    """Shows a warning of the block only where this process has not shown it for this problem: a verdict loads the text
    anew for every size, and Python takes each for another module, with other lines. No other reference runs meanwhile.

    Python's filters stay as they are: to change them would make it forget what it has shown of every other module.
    """
    show = warnings.showwarning

    def show_once(
        message: Warning | str, category: type[Warning], *place: Any, **where: Any
    ) -> None:
        key = (problem, category, str(message))
        if key not in _shown:
            _shown.append(key)
            show(message, category, *place, **where)

    warnings.showwarning = show_once
    try:
        yield
    finally:
        warnings.showwarning = show


def _moved(model: Any, device: str) -> Any:
    """Returns the model on the device. A model that is there already is not touched: tensors without data cannot be
    moved.
    """
    import torch

    parts = (*model.parameters(), *model.buffers())
    return model if all(part.device == torch.device(device) for part in parts) else model.to(device)


def move_attributes(model: Any, device: str) -> Any:
    """The model with the tensors on the device that its modules keep as plain attributes: `to` leaves them where they
    were made.
    """
    import torch

    for module in model.modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, torch.Tensor):
                setattr(module, name, value.to(device))
    return model


def _put_buffer(model: Any, name: str, value: Any) -> None:
    owner, _, last = name.rpartition(".")
    model.get_submodule(owner)._buffers[last] = value


def _written(held: Mapping[str, Any], now: Mapping[str, Any]) -> frozenset[str]:
    """The buffers that a call changed, and the running statistics of every layer that counted it: a mean of exactly
    what it was before is the luck of one draw.
    """
    changed = {n for n, b in held.items() if not _same(now.get(n), b)}
    counted = [n.removesuffix(_CALLS) for n in changed if n.endswith(_CALLS)]
    statistics = {f"{layer}{name}" for layer in counted for name in ("running_mean", "running_var")}
    return frozenset(changed | (statistics & held.keys()))


def _of_one_form(now: Any, before: Any) -> bool:
    return now is not None and now.shape == before.shape and now.dtype == before.dtype


def _same(now: Any, before: Any) -> bool:
    """Whether two tensors are equal element for element, NaN equal to NaN."""
    if not _of_one_form(now, before):
        return False
    return (
        bool(((now == before) | ((now != now) & (before != before))).all()) if now.numel() else True
    )


def model_in_float64(model: Any) -> Any:
    """Returns the same model in float64. `Reference.run` gives it the random numbers that the model itself draws."""
    import copy

    import torch

    if _is_bare(model):
        return _copy_of_bare(model)
    held = [
        v
        for module in model.modules()
        for v in vars(module).values()
        if isinstance(v, torch.Tensor)
    ]
    computed = {
        id(v): v.detach().clone() for v in held if not v.is_leaf
    }  # torch copies what is no leaf not at all
    wide = copy.deepcopy(model, computed).double()
    widen_attributes(wide)
    setattr(wide, _WIDENED, True)
    return wide


_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def _is_bare(model: Any) -> bool:
    """Whether a module holds plain values and nothing else, and is copied as any object is."""
    held = (v for v in vars(model).values() if type(v) not in _PLAIN)
    own_copying = any(
        hasattr(type(model), name) for name in ("__deepcopy__", "__copy__", "__slots__")
    )
    return not own_copying and all(type(v) in (dict, set, OrderedDict) and not v for v in held)


def _copy_of_bare(model: Any) -> Any:
    wide = object.__new__(type(model))
    vars(wide).update(
        {name: v if type(v) in _PLAIN else type(v)() for name, v in vars(model).items()}
    )
    setattr(wide, _WIDENED, True)
    return wide


def inputs_in_float64(inputs: list[Any]) -> list[Any]:
    """Floating inputs in float64; whole numbers, booleans and everything else as they are."""
    import torch

    return [
        v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for v in inputs
    ]


def _file(problem: Problem) -> str:
    return f"<reference {problem.name}>"


def _module(problem: Problem) -> types.ModuleType:
    module = types.ModuleType(
        f"reference_{hashlib.sha256(problem.source.encode()).hexdigest()[:12]}"
    )
    module.__file__ = _file(problem)
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
    """The last MAX_REMEMBERED_MODULES stay in `sys.modules` and `linecache`; a batch makes several for each verdict."""
    with _remembering:
        _made.append((module.__name__, str(module.__file__)))
        while len(_made) > MAX_REMEMBERED_MODULES:
            name, file = _made.popleft()
            if all(name != other for other, _ in _made):
                sys.modules.pop(name, None)
            if all(file != other for _, other in _made):
                linecache.cache.pop(file, None)


def _described(error: BaseException) -> str:
    """The error's type and the first line of its text, and what to do where the text does not say."""
    if isinstance(error, SystemExit):
        if missing := refusal_by_argparse(error):
            return f"argparse: {missing}: give each argument a default, the file is run without any"
        code = f": {clean_text(error, 100)}" if isinstance(error.code, str) else ""
        return f"it ends the program (sys.exit{code}): raise an exception where it cannot run"
    said = clean_text(error, 300).splitlines()[0] if str(error) else ""
    advice = (
        "; make tensors on the CPU, the judge moves them to its device" if _lacks_gpu(said) else ""
    )
    return f"{type(error).__name__}: {said}{advice}".removesuffix(": ")


def _lacks_gpu(message: str) -> bool:
    return (
        "not compiled with CUDA" in message
        or "NVIDIA driver" in message
        or "No CUDA GPUs" in message
    )
