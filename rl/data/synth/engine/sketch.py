"""A program under construction: the lines of reference and candidate grow in parallel.

A sketch after the chain "multiply, sigmoid" of the elementwise family, as read by program.py:

    inputs      ("x", "torch.randn(M, hidden_size)"), ("y", "torch.randn(M, hidden_size)")
    sizes       M: (128, 4), hidden_size: (12288, 1100)        full size, size of the CPU rungs
    ops         multiply, sigmoid
    reference   x = y * x               x = x.sigmoid()
    kernels     @triton.jit def elementwise_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK): ...
    host        out = torch.empty_like(x)     n = x.numel()     elementwise_kernel[...](...)
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")
LAYERS_WITH_WEIGHTS = ("nn.LayerNorm", "nn.GroupNorm", "nn.BatchNorm", "nn.Linear", "nn.Conv")
"""Layers with weights that a reference may initialize differently than torch."""
INPUT_SPREADS = (" * 2.0", " * 0.5", " - 0.5", " + 0.5", " * 3.0", " * 2.0 + 0.5", " * 2.0 - 1.0")
"""Factors and offsets applied to random tensors by get_inputs."""


class NameTaken(Exception):
    """Two parts of a program need an argument of the same name: the program is discarded."""


@dataclass
class Sketch:
    """A program under construction, filled by the families and written by
    `program.finish_program`. All draws come from `rng`.
    """

    rng: random.Random
    stages: int = 1
    """Number of consecutive kernels; the last kernel's output is `out`."""
    dtype: str = "float32"
    family: str = ""
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Module-level sizes: full, and for the CPU rungs."""
    inputs: list[tuple[str, str]] = field(default_factory=list)
    """Arguments of forward: name, and expression in get_inputs."""
    arguments: list[tuple[str, str]] = field(default_factory=list)
    """Arguments of `__init__`: name, and value in get_init_inputs."""
    defaults: dict[str, str] = field(default_factory=dict)
    """Default values of arguments of __init__; at the end of the list such arguments may be
    omitted.
    """
    reference_init: list[str] = field(default_factory=list)
    reference: list[str] = field(default_factory=list)
    """Statements of the reference's forward, each `x = ...`."""
    init: list[str] = field(default_factory=list)
    kernels: list[str] = field(default_factory=list)
    host: list[str] = field(default_factory=list)
    ops: list[str] = field(default_factory=list)
    """The chain of operations in order, which determines split and depth."""
    shape: tuple[str, ...] = ()
    """Sizes of the current tensor by their names in the reference; empty for unnamed sizes."""
    current: str = "x"
    """The candidate's variable of the current tensor."""
    reserved: set[str] = field(default_factory=set)
    """Names used by the family's own kernel."""
    wild: bool = False
    """Whether names may be arbitrary (`naming`)."""
    done: int = 0
    style: random.Random = field(init=False)
    """Draws the style of launches and names, which does not change the computation."""

    def __post_init__(self) -> None:
        # Seeded by the state of `rng` without drawing from it: styles were added later and must
        # not change earlier programs.
        self.style = random.Random(self.rng.getstate()[1][0])

    @property
    def narrow(self) -> bool:
        """Whether elements have fewer than 32 bits, so kernels compute in float32 and convert."""
        return self.dtype != "float32"

    @property
    def cast(self) -> str:
        """Suffix of a load for arithmetic in fp32."""
        return ".to(tl.float32)" if self.narrow else ""

    def chance(self, share: float) -> bool:
        """Draws true with probability `share`, between 0 and 1."""
        return self.rng.random() < share

    def pick(self, options: Sequence[T]) -> T:
        """Draws one of the options with equal probability. Raises IndexError for none."""
        return self.rng.choice(options)

    def size(self, name: str, full: Sequence[int], cpu: Sequence[int]) -> str:
        """Adds a module-level size and returns its name."""
        self.sizes[name] = (self.rng.choice(full), self.rng.choice(cpu))
        return name

    def input(self, name: str, shape: Sequence[str], make: str = "") -> str:
        """Adds an argument of forward. `make`: an expression with `{shape}` and `{dtype}`; empty
        draws from a normal or uniform distribution.
        """
        expression = make
        if not expression:
            distribution = self.rng.choice(("randn", "randn", "rand"))
            expression = f"torch.{distribution}({{shape}}{{dtype}}){self._spread(shape)}"
        dtype = f", dtype=torch.{self.dtype}" if self.narrow else ""
        self.inputs.append((name, expression.format(shape=", ".join(shape), dtype=dtype)))
        return name

    def _spread(self, shape: Sequence[str]) -> str:
        """Returns a random factor or offset for an input, which is no part of the problem."""
        if not self.chance(0.4):
            return ""
        # An offset for each row, so that rows differ.
        if len(shape) > 1 and not self.narrow and self.chance(0.25):
            return f" + torch.randn({', '.join((shape[0], *('1' for _ in shape[1:])))})"
        return self.pick(INPUT_SPREADS)

    def takes(self, name: str) -> bool:
        """Returns whether the models have an argument of this name."""
        return any(name == argument for argument, _ in self.arguments)

    def argument(self, name: str, value: str, keep: bool = True) -> str:
        """Adds an argument of both models, stored as `self.name` in both if `keep`. Raises
        NameTaken.
        """
        if self.takes(name):
            raise NameTaken(name)
        self.arguments.append((name, value))
        if keep:
            self.reference_init.append(f"self.{name} = {name}")
            self.init.append(f"self.{name} = {name}")
        return name

    def module(self, name: str, text: str, weights: bool = True) -> str:
        """Adds a layer to the reference, and to the candidate if it has weights."""
        self.reference_init.append(f"self.{name} = {text}")
        if weights:
            self.init.append(f"self.{name} = {text}")
            self._initialise(name, text)
        return name

    def _initialise(self, name: str, text: str) -> None:
        """Adds an initialization of the layer's weights to some references. The candidate
        receives the weights, so it needs none.
        """
        if not text.startswith(LAYERS_WITH_WEIGHTS) or "affine=" in text or not self.chance(0.3):
            return
        is_norm, has_bias = "Norm" in text, "bias=" not in text
        spellings = ("normal_(self.{name}.weight, std=0.02)", "xavier_uniform_(self.{name}.weight)")
        if is_norm:
            spellings = ("normal_(self.{name}.weight, 1.0, 0.5)", "uniform_(self.{name}.weight)")
        initialisation = self.pick(spellings)
        if is_norm or not has_bias or self.chance(0.5):
            self.reference_init.append("nn.init." + initialisation.format(name=name))
        if has_bias and self.chance(0.7):
            self.reference_init.append(f"nn.init.normal_(self.{name}.bias)")

    def free(self, name: str) -> str:
        """Returns the name, with a number if in use."""
        used = self.reserved | {other for other, _ in (*self.inputs, *self.arguments)}
        for line in self.reference_init:
            used.add(line.split(" = ")[0].removeprefix("self."))
        candidates = (name, *(f"{name}{number}" for number in range(2, 20)))
        return next(candidate for candidate in candidates if candidate not in used)

    def parameter_name(self, name: str) -> str:
        """Returns the name of the model's own parameter. In training it may equal a name in the
        layer's kernel, as in human code (`local` distinguishes them).
        """
        second = f"{name}2"
        clashes = self.wild and name in self.reserved
        if clashes and self.free(second) == second and not self._defined(name):
            self.reserved.add(second)
            return name
        return self.free(name)

    def _defined(self, name: str) -> bool:
        if self.takes(name) or any(name == input_name for input_name, _ in self.inputs):
            return True
        return any(line.startswith(f"self.{name} = ") for line in self.reference_init)

    def local(self, name: str) -> str:
        """Returns a parameter's name inside the kernel: another name if the family's kernel uses
        the same.
        """
        return f"{name}2" if name in self.reserved else name

    def target(self) -> str:
        """Returns the name of the next kernel's output."""
        self.done += 1
        return "out" if self.done == self.stages else f"hidden{self.done if self.done > 1 else ''}"
