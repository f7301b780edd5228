"""Opens the decision `value`: write a value to memory, or compute the value again in every kernel with a reader.

Inductor decides by thresholds over the whole graph: a value with several readers is stored from
`realize_reads_threshold` reads on, and any value from `realize_acc_reads_threshold` on. Here each value is a site. A
value with a single reader is a site only if the reader is no pointwise operator: a pointwise reader is fused again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kernelwright.policies.inductor.decisions.deciding import active_plan
from kernelwright.policies.inductor.decisions.sites import value_site

if TYPE_CHECKING:
    from torch._inductor.ir import StorageBox

STORE, RECOMPUTE = "store", "recompute"


def open_values() -> None:
    """Lets plans decide which values are stored, for the rest of this process."""
    from torch._inductor.ir import StorageBox

    # Patched once: a second patch would wrap the first.
    if hasattr(StorageBox.realize_hint, "plain"):
        return
    on_reuse: Callable[..., bool] = StorageBox.should_realize_on_reuse
    exceeded: Callable[..., bool] = StorageBox.has_exceeded_max_reads
    hint: Callable[..., None] = StorageBox.realize_hint

    def should_realize_on_reuse(self: StorageBox, users: int, *, graph_reuse: bool = True) -> bool:
        default = on_reuse(self, users, graph_reuse=graph_reuse)
        if not graph_reuse or users < 2 or not _is_open(self):
            return default
        return _decide(self, default)

    def has_exceeded_max_reads(self: StorageBox) -> bool:
        default = exceeded(self)
        if not _is_open(self) or not (default or _has_a_reader_of_another_shape()):
            return default
        stored = _decide(self, default and _reads_much(self))
        if stored and not default:
            self.realize()
        return stored and default

    def realize_hint(self: StorageBox) -> None:
        if not _is_open(self):
            hint(self)
        elif _decide(self, _reads_much(self)):
            self.realize()

    realize_hint.plain = hint  # type: ignore[attr-defined]
    StorageBox.should_realize_on_reuse = should_realize_on_reuse  # type: ignore[method-assign]
    StorageBox.has_exceeded_max_reads = has_exceeded_max_reads  # type: ignore[method-assign]
    StorageBox.realize_hint = realize_hint  # type: ignore[method-assign]


def _decide(box: StorageBox, stored: bool) -> bool:
    active = active_plan()
    assert active is not None
    default = STORE if stored else RECOMPUTE
    return active.decide("value", value_site(box.data), default, (STORE, RECOMPUTE)) == STORE


def _is_open(box: StorageBox) -> bool:
    """Whether a plan is being lowered and the value is computed from memory, and not in memory."""
    from torch._inductor.ir import Pointwise

    if active_plan() is None or not isinstance(box.data, Pointwise):
        return False
    return box.num_reads() > 0


def _reads_much(box: StorageBox) -> bool:
    """Inductor's own rule for values with a probable store later on."""
    data: Any = box.data
    return bool(data.inner_fn_opcount().nontrivial_read_count > 1)


def _has_a_reader_of_another_shape() -> bool:
    """Whether some reader of the present operator is not pointwise: a reduction, a product, a window."""
    import torch
    from torch._inductor.virtualized import V

    for user in V.graph.current_node.users:
        tags = getattr(user.target, "tags", None)
        is_view = getattr(getattr(user.target, "_schema", None), "name", "") in _VIEWS
        if tags is not None and torch.Tag.pointwise not in tags and not is_view:
            return True
    return False


_VIEWS = frozenset(
    f"aten::{name}"
    for name in (
        "view", "reshape", "expand", "permute", "unsqueeze", "squeeze", "slice", "select",
        "transpose", "t", "alias", "as_strided", "_unsafe_view", "detach",
    )
)  # fmt: skip
"""Operators whose result is a view of their operand, which no kernel computes."""
