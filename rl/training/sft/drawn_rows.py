"""Drafts straight from the generator, beside a corpus: the answers are those that it holds to be right, and no tool has
judged them.

Judging costs seconds a row and drawing milliseconds. A small model needs more different programs than can be judged in
the time that a GPU is lent for; which rows were judged is counted and stands in the card.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator
from typing import Any, TypeVar

from kernelwright.agent.prompts import PromptFields, Prompts
from kernelwright.policies.base import PromptForm
from kernelwright.rl.data.cleaning.suites import graphs_of
from kernelwright.rl.data.rows import Kind, Row, Split, row_of
from kernelwright.rl.data.synth.engine.tasks import task_of
from kernelwright.rl.training.sft.encoding import EncodedRow, RowSelection, encode_rows
from kernelwright.rl.training.sft.light_tokenizer import LightTokenizer
from kernelwright.rl.workers.worker_pool import process_pool
from kernelwright.store.models import Action
from kernelwright.tools.problem import ProblemError

CHUNK_ROWS = 500
SOURCE_OF_DRAWN_ROWS = "drawn, not judged"
T = TypeVar("T", Row, EncodedRow)


def drawn_rows(count: int, seed: int, workers: int, against: tuple[str, ...] = ()) -> Iterator[Row]:
    """The first `count` different drafts of the training split.

    The same seed gives the same rows in the same order, however many workers.

    against: suites that no row may be of, besides the benchmarks that are known (rl.data.cleaning.known_benchmarks).
    """
    return _different(_drawn(_chunk, seed, workers, against), count)


def encoded_drawn_rows(
    count: int,
    seed: int,
    workers: int,
    against: tuple[str, ...],
    tokenizer: Any,
    choice: RowSelection,
) -> Iterator[EncodedRow]:
    """Returns drawn rows as token ids.

    The processes that draw the rows encode them too, where the tokenizer and the form of the prompt need no
    transformers.
    """
    light = LightTokenizer.of(tokenizer) if choice.form is PromptForm.COMPACT else None
    if light is None:
        return encode_rows(drawn_rows(count, seed, workers, against), tokenizer, choice)
    return _different(_drawn(_ready_chunk, seed, workers, against, _begin, light, choice), count)


def _drawn(
    chunk: Callable[..., list[T]], seed: int, workers: int, against: tuple[str, ...], *begin: Any
) -> Generator[T]:
    """Chunk after chunk, without end. `begin`: what is called in each process, and with what."""
    start = 0
    with process_pool(workers, *begin) as pool:
        while True:
            ranges = [(seed, start + place * CHUNK_ROWS, against) for place in range(workers)]
            start += workers * CHUNK_ROWS
            for rows in pool.map(chunk, ranges):
                yield from rows


def _different(rows: Generator[T], count: int) -> Iterator[T]:
    """Returns rows with the first `count` different ids."""
    seen: set[str] = set()
    try:
        for row in rows if count else ():
            if isinstance(row, EncodedRow) and row.again:
                yield row
            elif row.id not in seen:
                if len(seen) == count:
                    return
                seen.add(row.id)
                yield row
    finally:
        rows.close()


_writing: tuple[LightTokenizer, RowSelection]
"""The state of a process that encodes rows: its tokenizer and the selection."""


def _begin(tokenizer: LightTokenizer, choice: RowSelection) -> None:
    """Starts as many processes as there are cores: each tokenizes in one thread."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    global _writing
    _writing = tokenizer, choice


def _ready_chunk(of: tuple[int, int, tuple[str, ...]]) -> list[EncodedRow]:
    return list(encode_rows(_chunk(of), *_writing))


def _chunk(of: tuple[int, int, tuple[str, ...]]) -> list[Row]:
    """The draws of one range of numbers that belong to the training split."""
    seed, start, against = of
    forbidden = graphs_of(*against)
    prompts = Prompts(PromptForm.COMPACT)
    found = []
    for number in range(start, start + CHUNK_ROWS):
        task = task_of(Split.TRAIN, seed, number, forbidden)
        if task is None:
            continue
        try:
            prompt = prompts.messages(PromptFields(problem=task.problem, action=Action.DRAFT))[
                -1
            ].content
        except (
            ProblemError
        ):  # a fault of the generator's in one draw of many is no end of a training
            continue
        facts = {
            "reference": task.problem.source,
            "family": task.family,
            "depth": task.depth,
            "source": SOURCE_OF_DRAWN_ROWS,
        }
        found.append(row_of(Kind.DRAFT, prompt, task.solution, problem=task.problem.name, **facts))
    return found
