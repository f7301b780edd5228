"""Names sites after the operators of the traced graph.

A buffer is named for the last operator of its value. Several buffers of an operator (the copies of a convolution) are
numbered: `convolution`, `convolution.2`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch._inductor.scheduler import BaseSchedulerNode, Scheduler


def operator_site() -> str:
    """Returns the name of the operator under lowering."""
    from torch._inductor.virtualized import V

    return str(V.graph.current_node.name)


def value_site(data: Any) -> str:
    """Returns the name of the operator of a value not in memory yet."""
    origin = data.get_origin_node()
    return operator_site() if origin is None else str(origin.name)


def pair_site(producer: str, consumer: str) -> str:
    """Returns the site of two operators."""
    return f"{producer}+{consumer}"


def operator_of_site(site: str) -> str:
    """Returns the operator of a scheduled operation's name: `convolution` of `convolution.2`."""
    return site.partition(".")[0]


def scheduled_sites(scheduler: Scheduler) -> dict[str, str]:
    """Returns the readable name of each scheduled operation, by Inductor's name (`op3`)."""
    # Computed once for a schedule: every possible fusion asks for the names.
    names: dict[str, str] = getattr(scheduler, "site_names", {})
    if not names:
        names = _named(scheduler)
        scheduler.site_names = names  # type: ignore[attr-defined]
    return names


def _named(scheduler: Scheduler) -> dict[str, str]:
    order = {node: i for i, node in enumerate(_graph_nodes())}
    by_operator: dict[str, list[tuple[bool, str]]] = {}
    for node in scheduler.name_to_node.values():
        operator = _operator_of(node, order)
        is_result = getattr(node.node, "origin_node", None) is not None
        by_operator.setdefault(operator, []).append((not is_result, node.get_name()))
    names: dict[str, str] = {}
    for operator, operations in by_operator.items():
        # The operator's own result comes first; the sort is stable, so copies stay in order.
        for number, (_, operation) in enumerate(sorted(operations, key=lambda o: o[0]), 1):
            names[operation] = operator if number == 1 else f"{operator}.{number}"
    return names


def _graph_nodes() -> list[Any]:
    from torch._inductor.virtualized import V

    return list(V.graph.graph.nodes)


def _operator_of(node: BaseSchedulerNode, order: dict[Any, int]) -> str:
    """Returns the name of the last operator, in the graph's order, of a scheduled operation."""
    buffer: Any = node.node
    origin = getattr(buffer, "origin_node", None)
    if origin is not None:
        return str(origin.name)
    origins = [n for n in getattr(buffer, "origins", ()) if n in order]
    if not origins:
        return node.get_name()
    return str(max(origins, key=order.__getitem__).name)
