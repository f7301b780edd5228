"""Opens the decisions `fuse` (operations that share a kernel) and `loops` (loops reordered for a fusion).

Inductor fuses the pair with the highest score first. Sites are pairs of operations before any fusion: a producer and
its consumer, or two readers of a buffer. Fused pairs can be held apart. A legal fusion that lost to one with a better
score, or that a heuristic forbade, can be put first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from kernelwright.policies.inductor.decisions.deciding import ActivePlan, active_plan
from kernelwright.policies.inductor.decisions.plan import WHOLE_GRAPH
from kernelwright.policies.inductor.decisions.sites import (
    operator_of_site,
    pair_site,
    scheduled_sites,
)

if TYPE_CHECKING:
    from torch._inductor.scheduler import BaseSchedulerNode, Scheduler

TOGETHER, APART = "together", "apart"
REORDER, KEEP = "reorder", "keep"
FIRST_SCORE = 10
"""Score, in the field for the kind of fusion, of pairs fused first by a plan; Inductor gives 2 at most."""


def open_fusions() -> None:
    """Lets plans decide about fusions, for the rest of this process."""
    from torch._inductor.choices import InductorChoices
    from torch._inductor.scheduler import Scheduler

    # Patched once: a second patch would wrap the first.
    if hasattr(Scheduler.can_fuse, "plain"):
        return
    legal: Callable[..., bool] = Scheduler.can_fuse
    reordered: Callable[..., int] = Scheduler.shared_data_after_reordering_loop
    worthwhile: Callable[..., bool] = InductorChoices.can_fuse
    beside: Callable[..., bool] = InductorChoices.can_fuse_horizontal
    scored: Callable[..., Any] = InductorChoices.score_fusion

    def can_fuse(
        self: Scheduler,
        node1: BaseSchedulerNode,
        node2: BaseSchedulerNode,
        *args: Any,
        **named: Any,
    ) -> bool:
        active = active_plan()
        if active is None:
            return legal(self, node1, node2, *args, **named)
        if _chosen_pairs(active, self, node1, node2, APART):
            return False
        fusable = legal(self, node1, node2, *args, **named)
        if fusable:
            _fusable_pairs(self).update(_adjacent_pairs(self, node1, node2))
        return fusable

    def shared_data_after_reordering_loop(
        self: Scheduler, node1: BaseSchedulerNode, node2: BaseSchedulerNode
    ) -> int:
        active = active_plan()
        if active is None:
            return reordered(self, node1, node2)
        names = scheduled_sites(self)
        site = pair_site(names[_last(node1)], names[_first(node2)])
        # Asked before Inductor's function, which reorders the loops in place.
        if active.chosen("loops", site) == KEEP:
            active.decide("loops", site, REORDER, (REORDER, KEEP))
            return -1
        shared = reordered(self, node1, node2)
        # -1: nothing was reordered, so there is nothing to decide.
        if shared >= 0:
            active.decide("loops", site, REORDER, (REORDER, KEEP))
        return shared

    def choices_can_fuse(
        scheduler: Scheduler, node1: BaseSchedulerNode, node2: BaseSchedulerNode, score: int
    ) -> bool:
        return worthwhile(scheduler, node1, node2, score) or _is_first(scheduler, node1, node2)

    def can_fuse_horizontal(
        scheduler: Scheduler, node1: BaseSchedulerNode, node2: BaseSchedulerNode, score: int
    ) -> bool:
        return beside(scheduler, node1, node2, score) or _is_first(scheduler, node1, node2)

    def score_fusion(
        scheduler: Scheduler, node1: BaseSchedulerNode, node2: BaseSchedulerNode
    ) -> Any:
        score = scored(scheduler, node1, node2)
        if not _is_first(scheduler, node1, node2):
            return score
        return type(score)(FIRST_SCORE, *_fields(score)[1:])

    can_fuse.plain = legal  # type: ignore[attr-defined]
    Scheduler.can_fuse = can_fuse  # type: ignore[method-assign]
    Scheduler.shared_data_after_reordering_loop = shared_data_after_reordering_loop  # type: ignore[method-assign]
    choices: Any = InductorChoices
    choices.can_fuse = staticmethod(choices_can_fuse)
    choices.can_fuse_horizontal = staticmethod(can_fuse_horizontal)
    choices.score_fusion = staticmethod(score_fusion)


def open_scheduled_fusions(scheduler: Scheduler, active: ActivePlan) -> None:
    """Records the decisions about fusions of a schedule: pairs in a common kernel, and other fusable pairs."""
    names = scheduled_sites(scheduler)
    kernel_of: dict[str, int] = {}
    for number, kernel in enumerate(scheduler.nodes):
        for node in kernel.get_nodes():
            kernel_of[node.get_name()] = number
    pairs: dict[tuple[str, str], None] = {}
    for kernel in scheduler.nodes:
        members = list(kernel.get_nodes())
        for producer in members:
            for consumer in members:
                if _reads(consumer, producer):
                    pairs[producer.get_name(), consumer.get_name()] = None
    pairs.update(dict.fromkeys(sorted(_fusable_pairs(scheduler))))
    for first, second in pairs:
        if operator_of_site(names[first]) == operator_of_site(names[second]):
            continue  # parts of an operator's result belong together
        is_together = kernel_of.get(first) == kernel_of.get(second)
        site = pair_site(names[first], names[second])
        chosen = active.chosen("fuse", site)
        # The default is unknown where the plan has chosen: it is the other alternative.
        default = TOGETHER if (chosen == APART or (chosen is None and is_together)) else APART
        active.decide("fuse", site, default, (TOGETHER, APART))


def _last(node: BaseSchedulerNode) -> str:
    return str(list(node.get_nodes())[-1].get_name())


def _first(node: BaseSchedulerNode) -> str:
    return str(next(iter(node.get_nodes())).get_name())


def _reads(consumer: BaseSchedulerNode, producer: BaseSchedulerNode) -> bool:
    written = producer.get_buffer_names()
    return any(dep.name in written for dep in consumer.read_writes.reads)


def _fusable_pairs(scheduler: Scheduler) -> set[tuple[str, str]]:
    """Pairs of operations, by name, whose fusion was legal at some step of the scheduling."""
    pairs: set[tuple[str, str]] | None = getattr(scheduler, "fusable_pairs", None)
    if pairs is None:
        pairs = scheduler.fusable_pairs = set()  # type: ignore[attr-defined]
    return pairs


def _adjacent_pairs(
    scheduler: Scheduler, node1: BaseSchedulerNode, node2: BaseSchedulerNode
) -> Iterator[tuple[str, str]]:
    """Yields the pairs of operations by which two kernels are neighbours: producer and consumer, or else readers
    of a common buffer.
    """
    pairs = [
        (first.get_name(), second.get_name())
        for first in node1.get_nodes()
        for second in node2.get_nodes()
        if _reads(second, first)
    ]
    yield from pairs or [(_last(node1), _first(node2))]


def _chosen_pairs(
    active: ActivePlan,
    scheduler: Scheduler,
    node1: BaseSchedulerNode,
    node2: BaseSchedulerNode,
    alternative: str,
) -> bool:
    """Whether the plan chooses an alternative for some pair of two kernels' operations; records the
    decision as open.
    """
    names = scheduled_sites(scheduler)
    for first in node1.get_nodes():
        for second in node2.get_nodes():
            # Two readers of a buffer have no order: the site may name either first.
            for producer, consumer in ((first, second), (second, first)):
                site = pair_site(names[producer.get_name()], names[consumer.get_name()])
                if active.chosen("fuse", site) == alternative:
                    default = TOGETHER if alternative == APART else APART
                    active.decide("fuse", site, default, (TOGETHER, APART))
                    return True
    return False


def _is_first(scheduler: Scheduler, node1: BaseSchedulerNode, node2: BaseSchedulerNode) -> bool:
    active = active_plan()
    return active is not None and _chosen_pairs(active, scheduler, node1, node2, TOGETHER)


def _fields(score: Any) -> list[Any]:
    import dataclasses

    return [getattr(score, field.name) for field in dataclasses.fields(score)]


def keeps_loop_order() -> bool:
    """Whether a plan keeps the loops of the whole graph as they are."""
    active = active_plan()
    if active is None:
        return False
    return active.decide("loops", WHOLE_GRAPH, REORDER, (REORDER, KEEP)) == KEEP
