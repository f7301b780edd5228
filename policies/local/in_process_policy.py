"""Model in this process with changing weights: many threads share one running batch, and training
updates weights.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kernelwright.policies.base import (
    Capabilities,
    Completion,
    PolicyError,
    PolicyRefused,
    Request,
    Trouble,
)
from kernelwright.policies.deadlines import check_deadline, latest_deadline
from kernelwright.policies.local.continuous_batch import (
    ContinuousBatch,
    can_batch_model,
    can_batch_sampling,
)
from kernelwright.policies.local.continuous_batch_cache import rows_that_fit
from kernelwright.policies.local.decoding import SequenceInDecoding
from kernelwright.policies.local.transformers_policy import (
    TransformersPolicy,
    load,
    on_device,
    own_gpu,
)

if TYPE_CHECKING:
    import torch

    from kernelwright.policies.local.transformers_policy import LoadedModel

log = logging.getLogger(__name__)

MAX_GPU_ROWS = 512
"""Rows of the running batch on a GPU."""
LENGTH_MULTIPLE = 256
"""The length of the batch, in tokens, is a multiple of it."""
REFILL_FRACTION = 8
"""Free slots are filled when they are this fraction of all: a prefill delays every row, whatever
its size.
"""
BURSTS_BEFORE_REFILL = 4
"""Bursts after which they are filled for fewer."""
MAX_TOKENIZED_AHEAD = 64
"""Questions that are tokenized while the GPU makes a burst of steps."""


class InProcessPolicy(TransformersPolicy):
    """`transformers:PATH` whose `sample` may be called by many threads, each getting its answer as soon as it is
    there.
    """

    def __init__(
        self,
        path: str,
        *,
        places: int | None = None,
        continuous: bool | None = None,
        **options: Any,
    ) -> None:
        """Prepares the policy without loading the model.

        `places`: rows of the running batch. `continuous`: use the running batch. None: on a GPU,
        for a model with full
        attention.
        """
        super().__init__(path, **options)
        self._places, self._wants_continuous = places, continuous
        self._batch: ContinuousBatch | None = None
        self._waiting: deque[QueuedRequest] = deque()
        self._arrivals = threading.Lock()
        self._passed_over = 0
        self._tokens = 0
        self._seconds = 0.0

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of transformers' policy, with the places of the running batch as requests at once."""
        return super().capabilities.with_(at_once=self._rows_at_once())

    @property
    def drawn(self) -> tuple[int, float]:
        """Tokens drawn so far, and the seconds in which any were."""
        return self._tokens, self._seconds

    def _rows_at_once(self) -> int:
        return self._places or (MAX_GPU_ROWS if on_device(self._device).startswith("cuda") else 64)

    def sample(self, requests: Sequence[Request]) -> list[Completion]:
        """Whoever asks works for all that wait, a burst of steps at a time, until its own answers are there.

        After `stop_answering`: KeyboardInterrupt. At the deadline of all requests: DeadlineReached.
        """
        deadline = latest_deadline(requests)
        questions = [self.ask(request) for request in requests]
        while not all(question.answered for question in questions):
            self._check_answering()
            check_deadline(deadline)
            with self._lock:
                if not all(question.answered for question in questions):
                    self._work()
        return _answers(questions)

    def open(self) -> None:
        """Loads the model now and not with the first question. Raises PolicyRefused."""
        with self._lock:
            self._open()

    def ask(self, request: Request) -> QueuedRequest:
        """Queues a request; another thread has to call `work` or `sample`."""
        question = QueuedRequest(request)
        with self._arrivals:
            self._waiting.append(question)
        return question

    def work(self) -> None:
        """Runs a burst of steps for all waiting requests; called by the thread that answers them.

        An exception concerns all of these requests.
        """
        with self._lock:
            self._work()

    def update(self, weights: Mapping[str, torch.Tensor], revision: str | None = None) -> str:
        """Replaces the weights and returns the new revision. No request may be running.

        Raises PolicyRefused for a name or shape that does not match the model.
        """
        import torch

        with self._lock:
            model = self._open().base
            parameters = dict(model.state_dict())
            for name, value in weights.items():
                if name not in parameters or parameters[name].shape != value.shape:
                    raise PolicyRefused(
                        f"the weights {name} do not fit {self._path}: sample from the model that is trained",
                        Trouble.MODEL,
                    )
            with torch.no_grad():
                for name, value in weights.items():
                    parameters[name].copy_(value)
            self._open().revision = revision or fingerprint(weights)
            return str(self._open().revision)

    def _open(self) -> Any:
        if self._loaded is None:
            self._loaded = load(self._path, on_device(self._device), self._dtype)
            self._loaded.between = self._check_between_steps
            if self._adapter is not None:
                raise PolicyRefused(
                    "a policy in the training's own process takes no adapter: its weights are those of the training",
                    Trouble.MODEL,
                )
        return self._loaded

    # -------------------------------------------------------------- work
    def _work(self) -> None:
        started, loaded = time.monotonic(), self._open()
        with own_gpu(loaded.model):
            if self._uses_continuous_batch(loaded):
                self._advance(loaded)
            else:
                self._plain(self._take(self._rows_at_once()))
        self._seconds += time.monotonic() - started

    def _uses_continuous_batch(self, loaded: LoadedModel) -> bool:
        if self._wants_continuous is None:
            self._wants_continuous = loaded.model.device.type == "cuda" and can_batch_model(
                loaded.model
            )
        return self._wants_continuous

    def _take(self, count: int) -> list[QueuedRequest]:
        with self._arrivals:
            return [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]

    def _plain(self, questions: list[QueuedRequest]) -> None:
        finished: dict[int, Completion] = {}
        try:
            self._sample([question.request for question in questions], finished)
        except PolicyError as error:
            _share(questions, error, finished)
        except BaseException as error:
            for question in questions:
                question.error = error
            raise
        for index, completion in finished.items():
            questions[index].completion = completion
            self._tokens += len(completion.token_ids or ())

    def _advance(self, loaded: LoadedModel) -> None:
        """Fills free slots if enough are free, runs some steps, and completes ended rows."""
        if self._batch is None or self._worth_filling(self._batch):
            self._admit(loaded)
        batch = self._batch
        if batch is None or not batch.busy:
            return
        batch.launch()
        self._prepare(loaded)
        for row in batch.ended():
            question: QueuedRequest = row.question  # type: ignore[attr-defined]
            row.latency = time.monotonic() - question.asked_at
            row.finish = loaded.finish(row)
            self._tokens += len(row.token_ids)
            question.completion = self._completion(question.request, row, None)

    def _worth_filling(self, batch: ContinuousBatch) -> bool:
        """Who asks alone finds most places free and is let in at once; else it is an eighth of the places, or
        `BURSTS_BEFORE_REFILL` bursts.
        """
        if not batch.free or not self._waiting:
            return False
        self._passed_over += 1
        return (
            batch.free * REFILL_FRACTION >= batch.capacity
            or self._passed_over > BURSTS_BEFORE_REFILL
        )

    def _prepare(self, loaded: LoadedModel) -> None:
        """The next questions' tokens, while a GPU is busy: a row asked for later is made already."""
        with self._arrivals:
            first = list(itertools.islice(self._waiting, MAX_TOKENIZED_AHEAD))
        for question in first:
            if self._fits_continuous_batch(question):
                _row(loaded, question)

    def _fits_continuous_batch(self, question: QueuedRequest) -> bool:
        return can_batch_sampling(question.request.sampling) and not question.request.adapter

    def _admit(self, loaded: LoadedModel) -> None:
        self._passed_over = 0
        questions = self._take(self._batch.free if self._batch else self._rows_at_once())
        # Requests with stop strings, truncation or an adapter are decoded outside of the running
        # batch.
        odd = [q for q in questions if not self._fits_continuous_batch(q)]
        if odd:
            self._plain(odd)
        rows = [row for q in questions if q not in odd and (row := _row(loaded, q)) is not None]
        if not rows:
            return
        if self._batch is None or not all(self._batch.takes(row) for row in rows):
            # A larger batch is needed, which can be made only when the present one is empty.
            if self._batch is not None and self._batch.busy:
                self._later(rows)
                return
            self._batch = self._new_batch(loaded, rows)
        self._later(rows[self._batch.free :])
        self._batch.admit(rows[: self._batch.free])

    def _later(self, rows: Sequence[_QuestionRow]) -> None:
        """Puts rows back at the head of the queue."""
        with self._arrivals:
            self._waiting.extendleft(row.question for row in reversed(rows))

    def _new_batch(self, loaded: LoadedModel, rows: Sequence[_QuestionRow]) -> ContinuousBatch:
        room = max(row.limit for row in rows)
        # A repair's prompt holds a reply as well: with room for one, the batch need not be made anew in the middle of a
        # round.
        length = max(len(row.prompt) + row.limit for row in rows) + room
        if self._batch is not None:
            length, room = max(length, self._batch.length), max(room, self._batch.room)
        if loaded.context is not None:
            length = min(length, loaded.context)
        length = -(-length // LENGTH_MULTIPLE) * LENGTH_MULTIPLE
        self._batch = None
        capacity = min(self._rows_at_once(), rows_that_fit(loaded.model, length))
        log.info("a continuous batch of %d rows of %d tokens", capacity, length)
        return ContinuousBatch(loaded.model, capacity, length, room, loaded.ends)


def fingerprint(weights: Mapping[str, torch.Tensor]) -> str:
    """Returns a fingerprint of some numbers of each tensor, for training moves them all: 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        flat = weights[name].detach().reshape(-1)
        step = max(1, flat.numel() // 256)
        digest.update(name.encode())
        digest.update(flat[::step][:256].float().cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


class QueuedRequest:
    """A request on its way: its completion or its error are there once it is answered."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.asked_at = time.monotonic()
        self.completion: Completion | None = None
        self.error: BaseException | None = None
        self.row: _QuestionRow | None = None

    @property
    def answered(self) -> bool:
        """Whether there is a completion, or the error that came instead."""
        return self.completion is not None or self.error is not None


class _QuestionRow(SequenceInDecoding):
    """A row with its owner."""

    question: QueuedRequest


def _row(loaded: LoadedModel, question: QueuedRequest) -> _QuestionRow | None:
    """Returns the row of a request, tokenized once; None if the policy refuses the request."""
    if question.row is not None or question.error is not None:
        return question.row
    try:
        plain = loaded.row(question.request)
    except PolicyError as error:
        question.error = error
        return None
    row = _QuestionRow(
        prompt=plain.prompt, sampling=plain.sampling, seed=plain.seed, limit=plain.limit
    )
    row.question, question.row = question, row
    return row


def _answers(questions: Sequence[QueuedRequest]) -> list[Completion]:
    for question in questions:
        if question.error is not None:
            if isinstance(question.error, PolicyError):
                question.error.finished = {
                    index: q.completion
                    for index, q in enumerate(questions)
                    if q.completion is not None
                }
            raise question.error
    return [question.completion for question in questions if question.completion is not None]


def _share(
    questions: Sequence[QueuedRequest], error: PolicyError, finished: Mapping[int, Completion]
) -> None:
    """Whom the trouble concerns: all that have no answer."""
    for index, question in enumerate(questions):
        if index not in finished:
            question.error = error
