"""`rl data synth`: worker processes verify, this process writes.

A later call continues a corpus; equal seeds give equal corpora.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path

from kernelwright.errors import InputError
from kernelwright.rl.data.rows import Kind, Row, Split, read_rows, write_rows
from kernelwright.rl.data.synth.engine.verifying import TaskOutcome
from kernelwright.rl.data.worker import evaluating, evaluator
from kernelwright.tools.report import Value

STATE_FILE = "synth.json"
DRAWS_AT_A_TIME = 1
"""Number of draws of a work unit: a draw takes a second or more."""
GENERATED_SHARD_ROWS = 1024
"""Number of rows in a shard."""
MAX_SECONDS_UNWRITTEN = 60.0
"""Longest time verified rows wait in memory for a full shard."""
MAX_KEPT_REASONS = 60
"""Maximum number of rejection reasons in the report, most frequent first."""


class CorpusRequest(Value):
    """The settings of a corpus, equal for all calls on the same folder."""

    seed: int = 0
    split: Split = Split.TRAIN
    target: str = "sm_90"
    repairs: int = 2
    """Number of broken versions tried for each kernel."""


class CorpusProgress(Value):
    """The progress of a corpus, as stored in its folder."""

    wanted: CorpusRequest = CorpusRequest()
    next: int = 0
    """Number of the first unused draw."""
    drafts: int = 0
    repairs: int = 0
    tried: int = 0
    """Number of programs given to the tools."""
    rejected: dict[str, int] = {}
    families: dict[str, int] = {}
    graphs: int = 0
    """Number of distinct dataflow graphs of the references."""
    seconds: float = 0.0
    """Wall time over all sessions."""
    workers: int = 0

    @property
    def rate(self) -> float:
        """Verified pairs a second."""
        return (self.drafts + self.repairs) / self.seconds if self.seconds else 0.0


def generate(
    request: CorpusRequest,
    n: int,
    folder: Path,
    workers: int,
    say: Callable[[str], None],
    forbidden: frozenset[str] | None = None,
) -> CorpusProgress:
    """Draws and judges programs until the folder holds `n` drafts.

    forbidden: dataflow graphs not to try; None: those of every known benchmark. Raises InputError
    if the folder holds another corpus.
    """
    state = _stored_state(request, folder)
    if state.drafts >= n:
        return state
    # Rows written before a crash may be ahead of the stored progress.
    prompts, graphs = _stored_hashes(folder)
    start, before = time.monotonic(), state.seconds
    written_at = start
    waiting: list[Row] = []
    try:
        with evaluating(workers) as pool:
            for outcome in _outcomes(pool, request, state.next, workers, forbidden):
                state = _counted(state, outcome, prompts, graphs, waiting)
                state = state.with_(seconds=before + time.monotonic() - start, workers=workers)
                say(
                    f"{state.drafts} of {n} drafts, {state.repairs} repairs, {state.rate:.2f} pairs/s, "
                    f"{state.graphs} graphs"
                )
                if len(waiting) >= GENERATED_SHARD_ROWS or (
                    waiting and time.monotonic() - written_at > MAX_SECONDS_UNWRITTEN
                ):
                    _keep(folder, waiting, state)
                    written_at = time.monotonic()
                if state.drafts >= n:
                    break
    finally:
        if waiting:
            _keep(folder, waiting, state)
    return state


def _keep(folder: Path, waiting: list[Row], state: CorpusProgress) -> None:
    """Writes the rows, then the progress: after a crash in between, the hashes identify the
    written rows.
    """
    write_rows(folder, waiting, max(len(waiting), 1))
    waiting.clear()
    partial = folder / f".{STATE_FILE}.{os.getpid()}"
    partial.write_text(state.model_dump_json(indent=1), encoding="utf-8")
    partial.replace(folder / STATE_FILE)


def _stored_state(request: CorpusRequest, folder: Path) -> CorpusProgress:
    path = folder / STATE_FILE
    if not path.is_file():
        if folder.is_dir() and any(folder.glob("*.parquet")):
            raise InputError(
                f"{folder} holds rows that rl data synth did not write: choose another --out"
            )
        return CorpusProgress(wanted=request)
    try:
        state = CorpusProgress.model_validate_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(
            f"{path} is damaged: delete it and its folder, or choose another --out"
        ) from error
    if state.wanted != request:
        was = state.wanted
        raise InputError(
            f"{folder} was made with seed {was.seed}, split {was.split}, target {was.target}, "
            f"{was.repairs} repairs: give the same, or another --out"
        )
    return state


def _stored_hashes(folder: Path) -> tuple[set[str], set[str]]:
    """Returns prompt hashes of the drafts, and dataflow graphs, in the folder."""
    from kernelwright.rl.data.dataflow import graph_hash

    if not folder.is_dir() or not any(folder.glob("*.parquet")):
        return set(), set()
    prompts, graphs = set(), set()
    for row in read_rows(folder, ["kind", "prompt_hash", "reference"]):
        if row.kind is Kind.DRAFT:
            prompts.add(row.prompt_hash)
            graphs.add(graph_hash(row.reference))
    return prompts, graphs


def _counted(
    state: CorpusProgress,
    outcome: TaskOutcome,
    prompts: set[str],
    graphs: set[str],
    waiting: list[Row],
) -> CorpusProgress:
    rejected = Counter(state.rejected) + Counter(outcome.rejected)
    tried = state.tried + len(outcome.rows) + len(outcome.rejected)
    families, drafts, repairs = Counter(state.families), state.drafts, state.repairs
    if outcome.rows:
        draft = outcome.rows[0]
        # An equal draft was drawn before: its repairs are dropped too.
        if draft.prompt_hash in prompts:
            rejected["draft: drawn before"] += 1
        else:
            prompts.add(draft.prompt_hash)
            graphs.add(outcome.graph)
            waiting += outcome.rows
            families[draft.family] += len(outcome.rows)
            drafts, repairs = drafts + 1, repairs + len(outcome.rows) - 1
    return state.with_(
        next=outcome.number + 1, drafts=drafts, repairs=repairs, tried=tried, graphs=len(graphs),
        rejected=dict(rejected.most_common(MAX_KEPT_REASONS)), families=dict(families.most_common()),
    )  # fmt: skip


# -------------------------------------------------------------- processes
def _outcomes(
    pool: ProcessPoolExecutor,
    request: CorpusRequest,
    first: int,
    workers: int,
    forbidden: frozenset[str] | None,
) -> Iterator[TaskOutcome]:
    """Yields the outcomes in the order of the draws, computed a few units ahead."""
    ahead: deque[Future[list[TaskOutcome]]] = deque()
    number = first
    while True:
        # Enough units under way for all workers, but results in the order of the draws.
        while len(ahead) < workers * 3:
            ahead.append(pool.submit(_unit, request, number, forbidden))
            number += DRAWS_AT_A_TIME
        yield from ahead.popleft().result()


def _unit(
    request: CorpusRequest, first: int, forbidden: frozenset[str] | None
) -> list[TaskOutcome]:
    return [
        _outcome(request, number, forbidden) for number in range(first, first + DRAWS_AT_A_TIME)
    ]


def _outcome(request: CorpusRequest, number: int, forbidden: frozenset[str] | None) -> TaskOutcome:
    from kernelwright.rl.data.dataflow import graph_hash
    from kernelwright.rl.data.synth.engine.tasks import task_of
    from kernelwright.rl.data.synth.engine.verifying import options, verify
    from kernelwright.tools.problem import ProblemError

    start = time.monotonic()
    task = task_of(request.split, request.seed, number, forbidden)
    if task is None:
        return TaskOutcome(number=number)
    graph = graph_hash(task.problem.source)
    try:
        outcome = verify(evaluator(), task, options(request.target), request.repairs, number)
    except ProblemError as error:
        return TaskOutcome(number=number, rejected=(f"draft: reference: {str(error)[:120]}",))
    return outcome.with_(graph=graph, seconds=time.monotonic() - start)


def state_of(folder: Path) -> CorpusProgress | None:
    """Reads the progress of a corpus of `rl data synth`; None for another folder."""
    try:
        return CorpusProgress(**json.loads((folder / STATE_FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None
