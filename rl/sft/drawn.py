"""Drafts straight from the generator, beside a corpus: the answers are those that it holds to be right, and no tool has judged them.

Judging costs seconds a row and drawing milliseconds. A small model needs more different programs than can be judged in the time that a GPU is lent
for; which rows were judged is counted and stands in the card.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from agent.prompts import Asked, Prompts
from policies.base import PromptForm
from rl.data.cleaning.suites import graphs_of
from rl.data.rows import Kind, Row, Split, row_of
from rl.data.synth.tasks import task_of
from store.models import Action
from tools.problem import ProblemError

CHUNK = 500
SOURCE = "drawn, not judged"


def drawn_rows(count: int, seed: int, workers: int, against: tuple[str, ...] = ()) -> Iterator[Row]:
    """The first `count` different drafts of the training split. The same seed gives the same rows in the same order, however many workers.

    against: suites that no row may be of, besides the benchmarks that are known (rl.data.cleaning.known).
    """
    if not count:
        return
    seen: set[str] = set()
    start = 0
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        while True:
            ranges = [(seed, start + place * CHUNK, against) for place in range(workers)]
            start += workers * CHUNK
            for rows in pool.map(_chunk, ranges):
                for row in rows:
                    if row.id not in seen:
                        seen.add(row.id)
                        yield row
                        if len(seen) == count:
                            pool.shutdown(cancel_futures=True)
                            return


def _chunk(of: tuple[int, int, tuple[str, ...]]) -> list[Row]:
    """The draws of one range of numbers that belong to the training split."""
    seed, start, against = of
    forbidden = graphs_of(*against)
    prompts = Prompts(PromptForm.COMPACT)
    found = []
    for number in range(start, start + CHUNK):
        task = task_of(Split.TRAIN, seed, number, forbidden)
        if task is None:
            continue
        try:
            prompt = prompts.messages(Asked(problem=task.problem, action=Action.DRAFT))[-1].content
        except ProblemError:  # a fault of the generator's in one draw of many is no end of a training
            continue
        facts = {"reference": task.problem.source, "family": task.family, "depth": task.depth, "source": SOURCE}
        found.append(row_of(Kind.DRAFT, prompt, task.solution, problem=task.problem.name, **facts))
    return found
