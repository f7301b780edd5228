"""Logs as the agent writes them: real databases, real rows; the policies are tiny and real, or scripted."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kernelwright.policies.base import Completion, Message, Request, Role, Sampling
from kernelwright.store.database import Store
from kernelwright.store.models import Action
from kernelwright.store.records import TrajectoryStart
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Report
from tests.rl.logged import REFERENCE


@pytest.fixture
def store(tmp_path) -> Iterator[Store]:
    with Store.open(tmp_path / "runs.db") as found:
        yield found


Tell = Callable[..., list[int]]


@pytest.fixture
def tell(store) -> Tell:
    """`tell("exp", (completion, report), (repair, report))` writes a trajectory; gives the candidates' numbers.

    A report of None: never judged.
    """
    numbers = iter(range(1_000_000))

    def told(
        problem: str,
        *turns: tuple[Completion, Report | None],
        temperature: float = 1.0,
        top_p: float = 1.0,
    ) -> list[int]:
        start = TrajectoryStart(
            problem=Problem(name=problem, source=REFERENCE.format(problem)),
            policy="transformers:tiny",
            options={"number": next(numbers)},
        )
        trajectory, ids = store.begin(start), []
        for place, (completion, report) in enumerate(turns):
            request = Request(
                messages=(Message(role=Role.USER, content=f"draft {problem}"),),
                sampling=Sampling(temperature=temperature, top_p=top_p),
            )
            action = Action.REPAIR if place else Action.DRAFT
            row = store.draft(
                trajectory.id, request, action=action, parent_id=ids[-1] if ids else None
            )
            store.complete(row.id, completion, f"x = {sum(completion.token_ids or ())}")
            if report is not None:
                store.judge(row.id, report)
            ids.append(row.id)
        store.finish(trajectory.id, "turns")
        return ids

    return told
