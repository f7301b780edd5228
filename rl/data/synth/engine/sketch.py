"""A program while it is drawn: the reference's lines and the candidate's grow side by side."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")
LAYERS_WITH_WEIGHTS = ("nn.LayerNorm", "nn.GroupNorm", "nn.BatchNorm", "nn.Linear", "nn.Conv")
"""Layers with weights that a reference may draw otherwise than torch does."""
INPUT_SPREADS = (" * 2.0", " * 0.5", " - 0.5", " + 0.5", " * 3.0", " * 2.0 + 0.5", " * 2.0 - 1.0")
"""Factors and offsets that get_inputs applies to a random tensor."""


class NameTaken(Exception):
    """Two parts of one program want an argument of the same name: it is not drawn."""


@dataclass
class Sketch:
    """Filled by the families, written out by `program.finish_program`. Everything in it follows from `rng`."""

    rng: random.Random
    stages: int = 1
    """Kernels that follow one another; the last one's output is `out`."""
    dtype: str = "float32"
    family: str = ""
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Module-level sizes: full, and for the CPU rungs."""
    inputs: list[tuple[str, str]] = field(default_factory=list)
    """Arguments of forward: name, and what get_inputs makes."""
    arguments: list[tuple[str, str]] = field(default_factory=list)
    """Arguments of `__init__`: each name, and what get_init_inputs gives for it."""
    defaults: dict[str, str] = field(default_factory=dict)
    """Arguments of __init__ that have one; at the end of the list they need not be given."""
    reference_init: list[str] = field(default_factory=list)
    reference: list[str] = field(default_factory=list)
    """Statements of the reference's forward, each `x = ...`."""
    init: list[str] = field(default_factory=list)
    kernels: list[str] = field(default_factory=list)
    host: list[str] = field(default_factory=list)
    ops: list[str] = field(default_factory=list)
    """The chain of operations in order: what splits and depth are read from."""
    shape: tuple[str, ...] = ()
    """Sizes of the current tensor, as the reference names them; "" where it has no name."""
    current: str = "x"
    """The candidate's variable that holds the current tensor."""
    reserved: set[str] = field(default_factory=set)
    """Names that a family's kernel has for itself."""
    wild: bool = False
    """Names may be any (`naming`)."""
    done: int = 0
    style: random.Random = field(init=False)
    """Draws the style of launches and of names, which does not change what is computed."""

    def __post_init__(self) -> None:
        self.style = random.Random(self.rng.getstate()[1][0])

    @property
    def narrow(self) -> bool:
        """Whether tensors have fewer than 32 bits an element, so that kernels compute in float32 and convert."""
        return self.dtype != "float32"

    @property
    def cast(self) -> str:
        """Put behind a load, so that arithmetic is in fp32."""
        return ".to(tl.float32)" if self.narrow else ""

    def chance(self, share: float) -> bool:
        """Draws from the sketch's generator: true with probability `share`, between 0 and 1."""
        return self.rng.random() < share

    def pick(self, options: Sequence[T]) -> T:
        """Draws one of the options with equal probability from the sketch's generator. Raises IndexError for none."""
        return self.rng.choice(options)

    def size(self, name: str, full: Sequence[int], cpu: Sequence[int]) -> str:
        """Adds a module-level size and returns its name."""
        self.sizes[name] = (self.rng.choice(full), self.rng.choice(cpu))
        return name

    def input(self, name: str, shape: Sequence[str], make: str = "") -> str:
        """Adds an argument of forward. `make`: an expression with `{shape}`; None draws from a normal or uniform
        distribution.
        """
        made = (
            make
            or f"torch.{self.rng.choice(('randn', 'randn', 'rand'))}({{shape}}{{dtype}}){self._spread(shape)}"
        )
        dtype = f", dtype=torch.{self.dtype}" if self.narrow else ""
        self.inputs.append((name, made.format(shape=", ".join(shape), dtype=dtype)))
        return name

    def _spread(self, shape: Sequence[str]) -> str:
        """Inputs are not always drawn as they come: what get_inputs does to them is no part of the problem."""
        if not self.chance(0.4):
            return ""
        if len(shape) > 1 and not self.narrow and self.chance(0.25):
            return f" + torch.randn({', '.join((shape[0], *('1' for _ in shape[1:])))})"
        return self.pick(INPUT_SPREADS)

    def takes(self, name: str) -> bool:
        """Whether the models have an argument of that name."""
        return any(name == taken for taken, _ in self.arguments)

    def argument(self, name: str, value: str, keep: bool = True) -> str:
        """Adds an argument of both models; `self.name` holds it in both where `keep`. Raises NameTaken."""
        if self.takes(name):
            raise NameTaken(name)
        self.arguments.append((name, value))
        if keep:
            self.reference_init.append(f"self.{name} = {name}")
            self.init.append(f"self.{name} = {name}")
        return name

    def module(self, name: str, text: str, weights: bool = True) -> str:
        """Adds a layer to the reference; where it has weights the candidate has the same one."""
        self.reference_init.append(f"self.{name} = {text}")
        if weights:
            self.init.append(f"self.{name} = {text}")
            self._initialise(name, text)
        return name

    def _initialise(self, name: str, text: str) -> None:
        """Some references draw a layer's weights by themselves. The candidate is given them, so it need not."""
        if not text.startswith(LAYERS_WITH_WEIGHTS) or "affine=" in text or not self.chance(0.3):
            return
        norm, biased = "Norm" in text, "bias=" not in text
        how = self.pick(
            ("normal_(self.{name}.weight, 1.0, 0.5)", "uniform_(self.{name}.weight)")
            if norm
            else ("normal_(self.{name}.weight, std=0.02)", "xavier_uniform_(self.{name}.weight)")
        )
        if norm or not biased or self.chance(0.5):
            self.reference_init.append("nn.init." + how.format(name=name))
        if biased and self.chance(0.7):
            self.reference_init.append(f"nn.init.normal_(self.{name}.bias)")

    def free(self, name: str) -> str:
        """The name, or with a number where it is taken."""
        taken = (
            self.reserved
            | {n for n, _ in (*self.inputs, *self.arguments)}
            | {line.split(" = ")[0].removeprefix("self.") for line in self.reference_init}
        )
        return next(n for n in (name, *(f"{name}{i}" for i in range(2, 20))) if n not in taken)

    def own(self, name: str) -> str:
        """The name of a parameter of the model's own: in training as people write it, though a layer's kernel has
        one of that name (`local` parts them).
        """
        if (
            self.wild
            and name in self.reserved
            and self.free(f"{name}2") == f"{name}2"
            and not self._defined(name)
        ):
            self.reserved.add(f"{name}2")
            return name
        return self.free(name)

    def _defined(self, name: str) -> bool:
        inputs = (taken for taken, _ in self.inputs)
        return (
            self.takes(name)
            or name in inputs
            or any(line.startswith(f"self.{name} = ") for line in self.reference_init)
        )

    def local(self, name: str) -> str:
        """Returns the name that a kernel uses for a parameter: another one where the family's kernel has that name
        itself.
        """
        return f"{name}2" if name in self.reserved else name

    def target(self) -> str:
        """Returns the name of the next kernel's output."""
        self.done += 1
        return "out" if self.done == self.stages else f"hidden{self.done if self.done > 1 else ''}"
