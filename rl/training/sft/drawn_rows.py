"""Drafts straight from the generator, in addition to a corpus: answers correct by construction,
but not judged by the tools.

Judging takes seconds a row and drawing milliseconds. A small model needs more programs than can
be judged in the time of a GPU loan; the card counts judged and drawn rows separately.
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
"""Number of rows drawn by a worker at a time."""
SOURCE_OF_DRAWN_ROWS = "drawn, not judged"
T = TypeVar("T", Row, EncodedRow)


def drawn_rows(count: int, seed: int, workers: int, against: tuple[str, ...] = ()) -> Iterator[Row]:
    """Yields the first `count` different drafts of the training split.

    The order depends on the seed alone, not on the number of workers. against: suites whose
    problems are excluded, in addition to the known benchmarks
    (rl.data.cleaning.known_benchmarks).
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
    """Yields drawn rows as token ids.

    The drawing processes also encode the rows, if tokenizer and prompt form need no transformers.
    """
    light = LightTokenizer.of(tokenizer) if choice.form is PromptForm.COMPACT else None
    if light is None:
        return encode_rows(drawn_rows(count, seed, workers, against), tokenizer, choice)
    return _different(_drawn(_ready_chunk, seed, workers, against, _begin, light, choice), count)


def _drawn(
    chunk: Callable[..., list[T]], seed: int, workers: int, against: tuple[str, ...], *begin: Any
) -> Generator[T]:
    """Yields the rows of chunk after chunk, without end. `begin`: the initializer of each
    process, and its arguments.
    """
    first = 0
    with process_pool(workers, *begin) as pool:
        while True:
            starts = range(first, first + workers * CHUNK_ROWS, CHUNK_ROWS)
            first += workers * CHUNK_ROWS
            for rows in pool.map(chunk, [(seed, start, against) for start in starts]):
                yield from rows


def _different(rows: Generator[T], count: int) -> Iterator[T]:
    """Yields rows up to the first `count` different ids."""
    ids: set[str] = set()
    try:
        for row in rows if count else ():
            if isinstance(row, EncodedRow) and row.again:
                yield row
            elif row.id not in ids:
                if len(ids) == count:
                    return
                ids.add(row.id)
                yield row
    finally:
        rows.close()


_writing: tuple[LightTokenizer, RowSelection]
"""The state of an encoding process: its tokenizer and the selection."""


def _begin(tokenizer: LightTokenizer, choice: RowSelection) -> None:
    """Initializes an encoding process. The processes occupy all cores, so each tokenizes in one
    thread.
    """
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    global _writing
    _writing = tokenizer, choice


def _ready_chunk(of: tuple[int, int, tuple[str, ...]]) -> list[EncodedRow]:
    return list(encode_rows(_chunk(of), *_writing))


def _chunk(of: tuple[int, int, tuple[str, ...]]) -> list[Row]:
    """Returns the draws of one range of numbers in the training split."""
    seed, start, against = of
    forbidden = graphs_of(*against)
    prompts = Prompts(PromptForm.COMPACT)
    rows = []
    for number in range(start, start + CHUNK_ROWS):
        task = task_of(Split.TRAIN, seed, number, forbidden)
        if task is None:
            continue
        fields = PromptFields(problem=task.problem, action=Action.DRAFT)
        try:
            prompt = prompts.messages(fields)[-1].content
        except ProblemError:
            # A faulty draw of the generator must not end a training.
            continue
        facts = {
            "reference": task.problem.source,
            "family": task.family,
            "depth": task.depth,
            "source": SOURCE_OF_DRAWN_ROWS,
        }
        rows.append(row_of(Kind.DRAFT, prompt, task.solution, problem=task.problem.name, **facts))
    return rows
