"""Symbolic sizes of inputs and constructor arguments, each with the path at which `ModelNew`
finds its value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kernelwright.policies.inductor.tracing.loops import TRACED_STEP
from kernelwright.policies.inductor.tracing.problem_text import (
    NON_EXTENT_NAMES,
    ProblemText,
    readable,
)
from kernelwright.policies.inductor.tracing.step_inputs import Unsuited

if TYPE_CHECKING:
    import sympy
    import torch
    from torch.fx.experimental.symbolic_shapes import ShapeGuard

MIN_SIZE = 5
"""Assumed lower bound of sizes, if the problem's own sizes are not smaller."""
_LAYOUT_FILES = re.compile(r"^\(?(_prims_common/|_prims/|_meta_registrations\.py|_subclasses/)")
"""Files of torch with queries of memory layouts, as named in guards."""


def integers_by_path(value: object, path: str) -> dict[str, int]:
    """Path -> integer, of tensors' sizes and of numbers inside lists and dictionaries."""
    import torch

    if isinstance(value, torch.Tensor):
        return {f"{path}.shape[{i}]": int(n) for i, n in enumerate(value.shape)}
    if isinstance(value, bool):
        return {}
    if isinstance(value, int):
        return {path: value}
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list | tuple)
        else ()
    )
    return {p: n for k, v in items for p, n in integers_by_path(v, f"{path}[{k!r}]").items()}


def is_extent(path: str) -> bool:
    """Returns whether a path denotes a tensor's size, as opposed to a number passed to ModelNew."""
    return re.search(r"\.shape\[\d+\]$", path) is not None


class SymbolicSizes:
    """Creates symbols for sizes and records the path and name of each."""

    def __init__(
        self,
        text: ProblemText,
        free: Callable[[int, str], bool],
        least: Mapping[str, int] | None = None,
    ) -> None:
        """Prepares the symbols. free: predicate by value and path for constructor numbers that
        are sizes.

        least: path -> smallest value of a size, if known.
        """
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        self.env = ShapeEnv(duck_shape=False)
        self.by_path: dict[str, Any] = {}
        """Path -> the symbolic integer."""
        self.names: dict[str, str] = {}
        """Path -> readable name."""
        self._least = least or {}
        self._free, self._dimensions, self._integers = (
            free,
            text.dimension_names(),
            text.named_integers(),
        )
        self._forward = text.forward_names()
        self._tensors = 0

    def symbol(self, value: int, path: str, name: str = "") -> Any:
        """Returns a symbolic integer with hint `value` for the size at `path`. name: its name in
        the draft, if given.
        """
        from torch._dynamo.source import ConstantSource
        from torch.fx.experimental.symbolic_shapes import DimDynamic
        from torch.utils._sympy.numbers import int_oo
        from torch.utils._sympy.value_ranges import ValueRanges

        source = ConstantSource(re.sub(r"\W", "_", path))
        symbol = self.env.create_symbol(
            value, source, dynamic_dim=DimDynamic.DYNAMIC, constraint_dim=None
        )
        # The lower bound lets torch decide comparisons such as `size > 1` without a guard.
        smallest = min(value, MIN_SIZE, self._least.get(path, MIN_SIZE))
        self.env.var_to_range[symbol] &= ValueRanges(smallest, int_oo)
        self.by_path[path] = self.env.create_symintnode(symbol, hint=value, source=source)
        names_of_value = self._integers.get(value, [])
        self.names[path] = readable(
            name or (names_of_value[0] if len(names_of_value) == 1 else self.plain_name(path))
        )
        return self.by_path[path]

    def plain_name(self, path: str) -> str:
        """Returns the default name of a size without a name of its own: x_shape_0."""
        return path.replace("self.", "")

    def name_of(self, symbol: sympy.Expr, path: str) -> str:
        """Returns the readable name of the size at a path; an unnamed size takes the name of an
        equal size.
        """
        own_name = self.names.get(path, "")
        if own_name and own_name != readable(self.plain_name(path)):
            return own_name
        equal = [
            p for p, v in self.by_path.items() if self.env.replacements.get(v.node._expr) == symbol
        ]
        named = [
            self.names[p]
            for p in equal
            if self.names[p] != readable(self.plain_name(p)) or p.startswith("self.")
        ]
        return named[0] if named else own_name

    def step(self, number: int) -> Any:
        """Returns the symbol for the step of a loop: any number from 0."""
        from torch._dynamo.source import ConstantSource
        from torch.fx.experimental.symbolic_shapes import DimDynamic
        from torch.utils._sympy.numbers import int_oo
        from torch.utils._sympy.value_ranges import ValueRanges

        source = ConstantSource(f"step_{number}_{len(self.env.var_to_range)}")
        symbol = self.env.create_symbol(TRACED_STEP, source, dynamic_dim=DimDynamic.DYNAMIC, constraint_dim=None,
            positive=None, do_not_specialize_zero_one=True)  # fmt: skip
        self.env.var_to_range[symbol] = ValueRanges(0, int_oo)
        return self.env.create_symintnode(symbol, hint=TRACED_STEP, source=source)

    def hold_for_every(self, step: torch.SymInt) -> None:
        """Raises Unsuited if tracing made a decision that depends on the number of the step."""
        import sympy

        symbol = step.node._expr
        guards = [
            g for g in self.env.guards if symbol in g.expr.free_symbols and not _is_about_layout(g)
        ]
        if symbol in self.env.replacements or any(
            isinstance(g.expr, sympy.Eq | sympy.Ne) for g in guards
        ):
            raise Unsuited("a loop over a size decides something by the number of the step")

    def tensor(self, like: torch.Tensor, path: str) -> Any:
        """Returns a tensor without values, with symbols for sizes above 1, in the memory order of
        `like`.
        """
        import torch

        names = [
            name or self._forward.get(f"{path}.shape[{i}]", "")
            for i, name in enumerate(self._next_names(like.dim()))
        ]
        sizes = [
            self.symbol(n, f"{path}.shape[{i}]", names[i]) if n > 1 else n
            for i, n in enumerate(like.shape)
        ]
        # Allocate in memory order and permute back, so that strides keep their order.
        order = sorted(range(like.dim()), key=lambda i: -like.stride()[i])
        if not like.permute(
            order
        ).is_contiguous():  # it overlaps (`expand`) or has gaps: forward makes it contiguous
            order = sorted(order)
        contiguous = torch.empty([sizes[i] for i in order], dtype=like.dtype)
        return (
            contiguous.permute([order.index(i) for i in range(like.dim())])
            if like.dim()
            else contiguous
        )

    def _next_names(self, count: int) -> list[str]:
        """Returns the names get_inputs uses for the sizes of its next tensor."""
        while self._tensors < len(self._dimensions):
            names = self._dimensions[self._tensors]
            self._tensors += 1
            if len(names) == count:
                return names
        return [""] * count

    def argument(self, value: object, path: str, name: str) -> Any:
        """A constructor's argument with symbols in the place of its sizes."""
        if isinstance(value, dict):
            return {k: self.argument(v, f"{path}[{k!r}]", str(k)) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self.argument(v, f"{path}[{i}]", name) for i, v in enumerate(value))
        if isinstance(value, int) and not isinstance(value, bool) and self._free(value, path):
            return self.symbol(value, path, name)
        return value

    def symbolic_input(self, value: object, path: str) -> Any:
        """An input with symbols in the place of its sizes."""
        import torch

        if isinstance(value, torch.Tensor):
            return self.tensor(value, path)
        if isinstance(value, list | tuple):
            return type(value)(self.symbolic_input(v, f"{path}[{i}]") for i, v in enumerate(value))
        if isinstance(value, dict):
            return {k: self.symbolic_input(v, f"{path}[{k!r}]") for k, v in value.items()}
        if isinstance(value, int) and not isinstance(value, bool) and self._free(value, path):
            return self.symbol(value, path)
        return value

    def fixed(self) -> list[str]:
        """Paths of sizes tracing turned into numbers."""
        numbers = {
            str(symbol) for symbol, other in self.env.replacements.items() if other.is_number
        }
        return [path for path, value in self.by_path.items() if str(value.node._expr) in numbers]

    def merged(self) -> list[tuple[str, str]]:
        """Pairs of paths whose sizes tracing found equal: each with the first of its kind."""
        first: dict[Any, str] = {}
        pairs = []
        for path, value in self.by_path.items():
            expression = value.node.expr
            if not expression.is_number and first.setdefault(expression, path) != path:
                pairs.append((first[expression], path))
        return pairs


def _is_about_layout(guard: ShapeGuard) -> bool:
    """Returns whether a guard is about memory layout or about an axis of length 1, whose stride
    does not matter.
    """
    import sympy

    source_line = str(guard.sloc)
    if isinstance(guard.expr, sympy.Ne):
        return bool(_LAYOUT_FILES.search(source_line))
    return "check_contiguous_sizes_strides" in source_line


def sizes_over(least: int) -> Callable[[int, str], bool]:
    """Treats the constructor's numbers above `least` as sizes, unless named as windows, strides or counts
    of layers.
    """

    def free(value: int, path: str) -> bool:
        return (
            value > least
            and path.startswith("self.")
            and not NON_EXTENT_NAMES.search(path.removeprefix("self.").rstrip("_"))
        )

    return free


def sizes_among(varying: set[str], least: int) -> Callable[[int, str], bool]:
    """Returns a predicate for sizes: numbers that differ between the sizes, and other numbers
    above `least`.
    """
    guess = sizes_over(least)
    return lambda value, path: value > 1 and (path in varying or guess(value, path))
