"""Symbols for sizes after a window (`(height + 1) // 2`).

Later sizes of a network are quotients of quotients: an index with four of them fills a page,
while an index with named
symbols is a line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from torch._subclasses.fake_tensor import FakeTensorMode

if TYPE_CHECKING:
    import sympy
    import torch
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

WINDOWED = re.compile(r"conv|pool")
"""Operators whose results have such sizes."""


class WindowSizes:
    """Quotients with a symbol, in order of occurrence."""

    def __init__(self, env: ShapeEnv) -> None:
        """env: the existing symbols; symbols of quotients are added."""
        self._env = env
        self.symbols: dict[Any, Any] = {}
        """Expression -> its symbol, both of sympy."""
        self._replace = env._set_replacement
        env._set_replacement = self._replaced  # type: ignore[method-assign, assignment]

    def _replaced(self, size: sympy.Expr, other: sympy.Expr, *args: Any, **options: Any) -> None:
        """Prevents torch from solving equations of window symbols.

        If an image is resized to an earlier size (`2 * (height // 2) == height`), torch would
        replace the height by twice a
        symbol without a source.
        """
        if not {size, *other.free_symbols} & set(self.symbols.values()):
            self._replace(size, other, *args, **options)

    def symbol(self, size: sympy.Expr) -> Any:
        """Returns the symbol of a size with a quotient; other sizes unchanged. Both are sympy
        expressions.
        """
        from torch._dynamo.source import ConstantSource
        from torch.fx.experimental.symbolic_shapes import DimDynamic
        from torch.utils._sympy.functions import FloorDiv

        if not getattr(size, "free_symbols", None) or not self._env.replace(size).has(FloorDiv):
            return size
        plain = plain_quotients(self._env.replace(size))
        if plain not in self.symbols:
            hint = int(cast(int, self._env.size_hint(plain)))
            source = ConstantSource(f"window_{len(self.symbols)}")
            new_symbol = self._env.create_symbol(hint, source, dynamic_dim=DimDynamic.DYNAMIC, constraint_dim=None,
                do_not_specialize_zero_one=True)  # fmt: skip
            self._env.var_to_range[new_symbol] = self._env.bound_sympy(plain)
            self.symbols[plain] = new_symbol
        return self.symbols[plain]

    def integer(self, size: int | torch.SymInt) -> Any:
        """Replaces window sizes in a symbolic integer, as `symbol` does in an expression."""
        import torch

        if not isinstance(size, torch.SymInt):
            return size
        named = self.symbol(size.node.expr)
        return (
            size
            if named is size.node.expr
            else self._env.create_symintnode(named, hint=size.node.hint)
        )


def plain_quotients(size: sympy.Expr) -> Any:
    """Returns the size with its quotients in a normal form: `(x + 1) // 2` for `(x - 1) // 2 +
    1`.
    """
    import sympy
    from torch.utils._sympy.functions import FloorDiv

    def plain(dividend: sympy.Expr, divisor: sympy.Expr) -> Any:
        dividend = sympy.expand(dividend)
        if not divisor.is_Integer:
            return FloorDiv(dividend, divisor)
        # Take the whole multiples of the divisor out of the quotient: (x + 3) // 2 is (x + 1) //
        # 2 + 1.
        number, _ = dividend.as_coeff_Add()
        whole = number // divisor
        return FloorDiv(dividend - whole * divisor, divisor) + whole

    return sympy.expand(size.replace(FloorDiv, plain))


class WindowedMode(FakeTensorMode):
    """Mode of tensors without values in which results of convolution and pooling have symbols for
    their sizes.
    """

    def __init__(self, env: ShapeEnv) -> None:
        super().__init__(allow_non_fake_inputs=True, shape_env=env)
        self.cache_enabled = (
            False  # with symbols for sizes, keys and checks of its entries cost more than it saves
        )
        self.windows = WindowSizes(env)

    def dispatch(
        self,
        func: torch._ops.OpOverload,
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> Any:
        """Dispatches the operator, and gives its tensors with symbols for quotients."""
        import torch
        from torch.utils._pytree import tree_map_only

        result = super().dispatch(func, types, args, kwargs or {})
        return (
            tree_map_only(torch.Tensor, self._named, result)
            if WINDOWED.search(str(func))
            else result
        )

    def _named(self, tensor: torch.Tensor) -> Any:
        import torch

        sizes = [self.windows.integer(n) for n in tensor.shape]
        if all(a is b for a, b in zip(sizes, tensor.shape, strict=True)):
            return tensor
        hints = [int(getattr(getattr(n, "node", None), "hint", n)) for n in tensor.stride()]
        # Allocate in memory order and permute, so that the strides keep their order.
        order = sorted(range(len(sizes)), key=lambda i: -hints[i])
        with self:
            renamed = torch.empty(
                [sizes[i] for i in order], dtype=tensor.dtype, device=tensor.device
            )
            return renamed.permute([order.index(i) for i in range(len(sizes))])


def window_size(size: sympy.Expr) -> Any:
    """Returns Inductor's size with quotients replaced by the symbols of tracing."""
    from torch._inductor.virtualized import V

    windows = getattr(V.graph.fake_mode, "windows", None)
    return size if windows is None else windows.symbol(size)
