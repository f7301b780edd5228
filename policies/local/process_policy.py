"""Live policy in a separate process, so that threads of the rollout loop never delay the GPU.

A Python thread launches each step of a GPU. In a shared interpreter that thread would wait for
its turn at every
step.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kernelwright.policies.base import (
    Capabilities,
    Completion,
    PolicyError,
    PolicyRefused,
    PolicyUnavailable,
    PromptForm,
    Request,
    Trouble,
)
from kernelwright.policies.deadlines import DeadlineReached, latest_deadline, seconds_until
from kernelwright.worker_process import WorkerProcess

if TYPE_CHECKING:
    import torch

POLICY_EXIT_SECONDS = 10.0
"""Seconds the process is given to end by itself."""


class ProcessOpened(NamedTuple):
    """The first message of the process, once it has opened the model."""

    name: str
    capabilities: Capabilities
    prompt_form: PromptForm


class PendingRequest(NamedTuple):
    """A request on its way to the policy's process, with the number that its answer will carry."""

    number: int
    request: Request


class WeightsMoved(NamedTuple):
    """Says that the policy's weights were moved to these."""

    number: int
    path: str
    revision: str | None


ErrorMessage = tuple[str, Trouble, bool]
"""Trouble in words, its kind, and whether asking again can help."""


class ProcessAnswer(NamedTuple):
    """The answer of the policy's process to the request of the same number."""

    number: int
    answer: Completion | str | None
    """Completion or revision; None after an error."""
    trouble: ErrorMessage | None
    drawn: tuple[int, float]
    """Tokens so far, and the seconds they took."""


class OpenedElsewhere:
    """The properties of a policy that was opened in another process, or on another machine."""

    _opened: ProcessOpened

    @property
    def name(self) -> str:
        """The name the policy opened with."""
        return self._opened.name

    @property
    def capabilities(self) -> Capabilities:
        """Returns the capabilities of the policy."""
        return self._opened.capabilities

    @property
    def prompt_form(self) -> PromptForm:
        """The form of prompts the policy was trained on."""
        return self._opened.prompt_form


class ProcessPolicy(OpenedElsewhere):
    """An `InProcessPolicy` in a separate process; `update` moves its weights. Raises
    PolicyRefused on opening failures.
    """

    def __init__(self, path: str, *, gpu: str | None = None, **options: Any) -> None:
        """Starts the process and waits until the model is loaded.

        `gpu`: the only visible GPU, as in CUDA_VISIBLE_DEVICES, which the process sees as
        `cuda:0`. `options`: arguments of
        InProcessPolicy.
        """
        self._process = WorkerProcess("kernelwright.policies.local.policy_process")
        self._connection = self._process.connection
        with contextlib.suppress(OSError):  # it has ended: `_first` says so
            self._connection.send((path, gpu, options))
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[Any]] = {}
        self._request_count = 0
        self._drawn = (0, 0.0)
        self._opened = self._first()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _first(self) -> ProcessOpened:
        try:
            message = self._connection.recv()
        except (EOFError, OSError):
            self._process.close()
            raise PolicyUnavailable(_process_ended_message(), Trouble.SERVER) from None
        if isinstance(message, ProcessAnswer):
            assert message.trouble is not None
            self._process.close(POLICY_EXIT_SECONDS)
            raise error_of_message(message.trouble)
        assert isinstance(message, ProcessOpened)
        return message

    @property
    def drawn(self) -> tuple[int, float]:
        """Tokens drawn so far, and the seconds in which any were."""
        return self._drawn

    def sample(self, requests: Sequence[Request]) -> list[Completion]:
        """Answers the requests; any number of threads may ask."""
        deadline = latest_deadline(requests)
        futures = [self._send(PendingRequest, request) for request in requests]
        completions: dict[int, Completion] = {}
        trouble: PolicyError | None = None
        for index, future in enumerate(futures):
            try:
                completions[index] = future.result(seconds_until(deadline))
            except TimeoutError:
                trouble = trouble or DeadlineReached()
            except PolicyError as error:
                trouble = trouble or error
        if trouble is not None:
            trouble.finished = completions
            raise trouble
        return [completions[index] for index in range(len(requests))]

    def update(self, weights: Mapping[str, torch.Tensor], revision: str | None = None) -> str:
        """Replaces the weights and returns the new revision.

        Raises PolicyRefused for a name or shape that does not match the model.
        """
        import torch

        with tempfile.TemporaryDirectory(prefix="kernelwright-weights-") as folder:
            path = Path(folder) / "weights.pt"
            torch.save({name: value.detach() for name, value in weights.items()}, path)
            return str(self._send(WeightsMoved, str(path), revision).result())

    def stop_answering(self) -> None:
        """Nobody is answered any more: who waits gets KeyboardInterrupt."""
        self._fail(KeyboardInterrupt())

    def close(self) -> None:
        """Asks the process to end, kills it after `POLICY_EXIT_SECONDS`, and joins the reader
        thread.
        """
        with contextlib.suppress(OSError), self._lock:
            self._connection.send(None)
        self._process.wait(POLICY_EXIT_SECONDS)
        self._process.end()
        self._reader.join(POLICY_EXIT_SECONDS)
        self._process.close()

    def _send(self, kind: type[PendingRequest] | type[WeightsMoved], *content: Any) -> Future[Any]:
        future: Future[Any] = Future()
        with self._lock:
            self._request_count += 1
            self._waiting[self._request_count] = future
            try:
                self._connection.send(kind(self._request_count, *content))
            except OSError:
                future.set_exception(PolicyUnavailable(_process_ended_message(), Trouble.SERVER))
        return future

    def _read(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                # The process sends its answers in lists, a burst of steps at a time.
                for answer in self._connection.recv():
                    self._drawn = answer.drawn
                    with self._lock:
                        future = self._waiting.pop(answer.number, None)
                    if future is None:
                        continue
                    future.set_exception(
                        error_of_message(answer.trouble)
                    ) if answer.trouble else future.set_result(answer.answer)
        self._fail(PolicyUnavailable(_process_ended_message(), Trouble.SERVER))

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            waiting, self._waiting = list(self._waiting.values()), {}
        for future in waiting:
            if not future.done():
                future.set_exception(error)


def _process_ended_message() -> str:
    return "the process that samples has ended: see its output above, or use --engine transformers"


def error_of_message(trouble: ErrorMessage) -> PolicyError:
    """The error that trouble in another process stands for."""
    words, kind, again = trouble
    return PolicyUnavailable(words, kind) if again else PolicyRefused(words, kind)


def message_of_error(error: BaseException) -> ErrorMessage:
    """Converts an error to a message for another process."""
    if isinstance(error, PolicyError):
        return str(error), error.trouble, isinstance(error, PolicyUnavailable)
    return f"sampling failed: {type(error).__name__}: {error}", Trouble.SERVER, True
