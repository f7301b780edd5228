"""The problem, alive: its module, its models in both precisions, its inputs. Only in the trusted
process.

The reference is the user's own text and is trusted; it never shares a process or a namespace with
a candidate.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from kernelwright.device_mapping import cuda_mapped_to
from kernelwright.source_lines import place_of_error
from kernelwright.tools.nested import Form, leaf_names, put_together, take_apart
from kernelwright.tools.numerics.seeds import bounds_are_drawn, seeded, stable_sorts
from kernelwright.tools.problem import Problem, ProblemError, check_form
from kernelwright.tools.references.arithmetic import draws_in_float32
from kernelwright.tools.references.models.float64 import WIDENED
from kernelwright.tools.references.models.model_state import (
    changed_buffers,
    has_form_of,
    move_attributes,
    moved,
    put_buffer,
)
from kernelwright.tools.references.models.module_loading import (
    describe_error,
    load_module,
    module_file,
    warned_once,
)
from kernelwright.tools.references.torch_settings import (
    DEFAULT_DEVICE,
    KeptSettings,
    may_change_settings,
)
from kernelwright.tools.trace.forms_of_outputs import flatten, paths

if TYPE_CHECKING:
    import torch

Made = TypeVar("Made")


class Reference:
    """Reference of a problem on a device. Raises ProblemError, with the line, if the reference
    itself fails.
    """

    def __init__(self, problem: Problem, device: str) -> None:
        check_form(problem.source)
        self.problem = problem
        self.device = device
        self.changing: frozenset[str] | None = None
        """Names of buffers changed by forward; None before the first run."""
        self.updated: tuple[str, ...] = ()
        """Changed buffers which keep shape and type, in order: their content after a call is part
        of the answer.
        """
        self.sorts: bool | None = False
        """Whether forward sorts, which leaves the order of equal numbers open: its sorts are
        stable then. None: until its operators are counted, sorts are stable.
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
            self._module = load_module(problem)

    @contextlib.contextmanager
    def _trouble(self, when: str) -> Iterator[None]:
        """Converts errors of the reference to a line with their position, and shows each of its
        warnings once.
        """
        import torch

        try:
            with warned_once(self.problem.name):
                yield
        except torch.cuda.OutOfMemoryError:
            raise
        except (Exception, SystemExit) as error:
            location = (
                place_of_error(error, self.problem.source, module_file(self.problem))
                or f" when it {when}"
            )
            raise ProblemError(
                f"the reference {self.problem.name} fails{location}: {describe_error(error)}"
            ) from error

    @contextlib.contextmanager
    def settings(self, *, on_device: bool = False) -> Iterator[None]:
        """Applies this reference's global torch settings (precisions, default type and device,
        threads) until the block ends, as in a process of its own, and then restores the previous
        settings. No other reference runs meanwhile.

        on_device: the block itself sets the device of new tensors, so that no default device is
        needed, which torch does not support within both.
        """
        with (
            cuda_mapped_to(self.device, self.problem.source),
            self._settings_context(on_device=on_device) as settings,
        ):
            yield
        self._settings |= settings.changed

    def _settings_context(
        self, *, on_device: bool = False, generators: bool = True
    ) -> KeptSettings:
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
        settings_context = self._settings_context(on_device=on_device, generators=not draws)
        with (
            mapped,
            settings_context as settings,
            seeded(seed, python=self._python) if draws else contextlib.nullcontext(),
        ):
            yield
        self._settings |= settings.changed

    def init_arguments(self) -> list[Any]:
        """Returns the positional arguments of the models. Raises ProblemError if not a list."""
        with self.settings(), self._trouble("gives get_init_inputs()"):
            return _listed(self._module.get_init_inputs(), "get_init_inputs")

    def model(self, seed: int) -> Any:
        """Returns a new model with weights drawn from `seed` on the device, in training mode like
        KernelBench's."""
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
                return moved(
                    model if device == self.device else move_attributes(model, self.device),
                    self.device,
                )

        return self._on_device_or_host(built)

    def _on_device_or_host(self, make: Callable[[str], Made]) -> Made:
        """Returns values created on the device; on the CPU, to be moved, if the problem uses a
        CPU generator.
        """
        try:
            return make(self.device)
        except ProblemError as error:
            if self.device in ("cpu", "meta") or "device type for generator" not in str(error):
                raise
        return make("cpu")

    def inputs(self, seed: int) -> list[Any]:
        """Draws the inputs from get_inputs() on the device, without gradients: only forward is
        judged. Tensors inside of lists, tuples and dictionaries are taken out: `arguments` puts
        them back.
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

        arguments = self._on_device_or_host(drawn_on)
        for value, name in zip(arguments, self.input_names, strict=True):
            if not isinstance(value, torch.Tensor) and any(
                isinstance(leaf, torch.Tensor) for leaf in flatten(value)
            ):
                raise ProblemError(
                    f"the reference {self.problem.name} gives tensors inside a {type(value).__name__} (input {name}): "
                    "use lists, tuples, and dictionaries with texts as keys"
                )
        return arguments

    def arguments(self, inputs: Sequence[Any]) -> list[Any]:
        """Returns the arguments of forward with these inputs, nested like the result of
        get_inputs()."""
        return list(inputs) if self._form is None else put_together(self._form, inputs)

    @property
    def input_names(self) -> list[str]:
        """Returns the name of each input by its position among the arguments, `0[1]` inside an
        argument.
        """
        return [] if self._form is None else leaf_names(self._form)

    def run(
        self,
        model: torch.nn.Module,
        inputs: list[Any],
        rng: int,
        updated_buffers: list[Any] | None = None,
    ) -> list[Any]:
        """Returns the flat outputs, with the generators set to `rng` first, so that live dropout
        agrees between two models.

        Restores buffers which forward changes (running statistics, a cache): a call is judged on
        its initial state, independent of earlier calls.

        updated_buffers: receives the content of the buffers in `updated` after the call.
        """
        import torch

        updated_buffers = [] if updated_buffers is None else updated_buffers
        widening = (
            draws_in_float32() if getattr(model, WIDENED, False) else contextlib.nullcontext()
        )
        ties = contextlib.nullcontext() if self.sorts is False else stable_sorts()
        with (
            self._seeded(rng),
            self._trouble("runs"),
            torch.no_grad(),
            widening,
            ties,
            self._buffers_kept(model, updated_buffers),
        ):
            output = model(*self.arguments(inputs))
            self.paths = paths(output)
            return flatten(output)

    @contextlib.contextmanager
    def _buffers_kept(self, model: torch.nn.Module, updated_buffers: list[Any]) -> Iterator[None]:
        """Forward works on copies of the buffers that it changes; the first run finds out which
        those are. Without data there is nothing to keep, and copies would be counted as work.
        """
        if self.device == "meta":
            yield
            return
        named = model.named_buffers(remove_duplicate=False)
        held = {n: b for n, b in named if self.changing is None or n in self.changing}
        copies: dict[int, Any] = {}
        for name, buffer in held.items():
            put_buffer(model, name, copies.setdefault(id(buffer), buffer.clone()))
        now: dict[str, Any] = {}
        try:
            yield
            now = {n: b for n, b in model.named_buffers(remove_duplicate=False) if n in held}
        finally:
            for name, buffer in held.items():
                put_buffer(model, name, buffer)
        if self.changing is None:
            self.changing = changed_buffers(held, now)
            self.updated = tuple(
                n for n in sorted(self.changing) if has_form_of(now.get(n), held[n])
            )
        updated_buffers += [now[n].detach() if n in now else None for n in self.updated]


def _listed(arguments: object, function: str) -> list[Any]:
    """Returns the arguments as given by a function of the reference. Raises TypeError for another
    form than a list: agent/problems/forms_of_users converts every other form.
    """
    if not isinstance(arguments, list | tuple):
        raise TypeError(
            f"{function} gives a {type(arguments).__name__}: return a list of the arguments in their order"
        )
    return list(arguments)
