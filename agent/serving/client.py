"""JudgeClient: verdicts of a judge service, in sync, async and batch form."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import PrivateAttr

from kernelwright.agent.judging.pool import ignore
from kernelwright.agent.serving.requests import (
    TIMEOUT_SECONDS,
    WAIT_SECONDS,
    Deadline,
    JudgeServiceError,
    ServiceBusy,
    Verdict,
    VerdictNotInTime,
    bearer_header,
    pause_seconds,
    read_answer,
    submission_of,
    verdict_of,
)
from kernelwright.agent.serving.service_wire import Health, QueueState
from kernelwright.agent.serving.wire import (
    MAX_BATCH,
    BatchAnswer,
    Code,
    Status,
    VerdictList,
)
from kernelwright.closing_context import ClosingContext
from kernelwright.errors import InputError
from kernelwright.tools.problem import Problem

if TYPE_CHECKING:
    import httpx2

UNAUTHORIZED = 401
REQUEST_BATCH_BYTES = 8 * 2**20
"""Maximum size of a request with several candidates, in bytes."""
Named = str | Path | Problem
"""A problem: a name in the server's catalogue, the path of a local file, or a Problem."""


class SubmittedVerdict(Status):
    """Status of a verdict at its submission, with a method to wait for the verdict."""

    _client: JudgeClient = PrivateAttr()

    def result(
        self, progress: Callable[[str], None] = ignore, *, timeout: float | None = None
    ) -> Verdict:
        """Waits for the verdict, like the future of `Judge.submit`. Raises the exceptions of
        `JudgeClient.result`.
        """
        return self._client.result(self, progress, timeout=timeout)


class JudgeClient(ClosingContext):
    """Client of a judge service. Thread-safe; a context manager.

    Every method waits while the service is busy (429) or out of reach, for up to `patience` seconds
    in a row. Methods raise ProblemError for an unusable reference, InputError for an unusable
    request, and JudgeServiceError (an InfrastructureError) for everything else. A broken candidate
    is a value.
    """

    def __init__(self, url: str, token: str | None = None, patience: float = 600.0) -> None:
        """url: `http://HOST:PORT`, or the address printed by `agent serve`
        (`http://HOST:PORT/#token=TOKEN`). token: a token of the server's token file. patience:
        seconds of waiting for a busy or absent service.
        """
        import httpx2

        if not url.startswith(("http://", "https://")):
            raise InputError(f"{url!r} is no address of a judge service: give http://HOST:PORT")
        url, _, url_token = url.partition("#token=")
        self.url, self._patience = url.rstrip("/"), patience
        self._settings: dict[str, Any] = {
            "base_url": self.url,
            "headers": bearer_header(url_token or token),
            "timeout": TIMEOUT_SECONDS,
        }
        # Certificates are read for https only.
        self._settings["verify"] = url.startswith("https://")
        self._http = httpx2.Client(**self._settings, limits=httpx2.Limits(max_connections=None))
        self._met = False
        """Whether the service has ever answered. An address without a service fails at once."""

    def close(self) -> None:
        """Closes the connections. Submitted verdicts are still judged."""
        self._http.close()

    # -------------------------------------------------------------- one candidate
    def score(
        self, problem: Named, code: str, *, device: str | None = None, group: str | None = None,
        progress: Callable[[str], None] = ignore, timeout: float | None = None, **options: Any,
    ) -> Verdict:  # fmt: skip
        """Judges a candidate and waits for the verdict. `options`: see docs/reference/service.md.

        timeout: seconds for everything together, the queue included; afterwards the verdict is
        withdrawn and JudgeServiceError is raised. None: no limit.
        """
        deadline = Deadline(timeout)
        body = submission_of(problem, code, options, device, group)
        return self._result(self._submit(body, deadline), progress, deadline)

    def submit(
        self,
        problem: Named,
        code: str,
        *,
        device: str | None = None,
        group: str | None = None,
        **options: Any,
    ) -> SubmittedVerdict:
        """Submits a candidate without waiting; `submit(...).result()` waits."""
        return self._submit(submission_of(problem, code, options, device, group), Deadline(None))

    def _submit(self, body: Mapping[str, Any], deadline: Deadline) -> SubmittedVerdict:
        answer = self._ask("POST", "/v1/verdicts", deadline, json=body)
        submitted = SubmittedVerdict.model_validate_json(answer)
        submitted._client = self
        return submitted

    def status(self, verdict_id: str, wait: float = 0.0) -> Status:
        """Returns the status of a verdict; waits up to `wait` seconds (60 at most) for its end."""
        return Status.model_validate_json(
            self._ask("GET", f"/v1/verdicts/{verdict_id}", params={"wait": wait})
        )

    def result(
        self,
        submitted: Status,
        progress: Callable[[str], None] = ignore,
        *,
        timeout: float | None = None,
    ) -> Verdict:
        """Waits for the verdict of a submission. `progress` is called with the current step from
        time to time.

        timeout: seconds from now on; afterwards the verdict is withdrawn and JudgeServiceError is
        raised.
        """
        return self._result(submitted, progress, Deadline(timeout))

    def _result(
        self, submitted: Status, progress: Callable[[str], None], deadline: Deadline
    ) -> Verdict:
        status, path = submitted, f"/v1/verdicts/{submitted.verdict_id}"
        # Short waits, so that progress is reported every second.
        wait = WAIT_SECONDS if progress is ignore else 1.0
        while (verdict := verdict_of(status.model_copy(update={"known": submitted.known}))) is None:
            progress(describe_activity(status))
            try:
                deadline.check(status)
            except VerdictNotInTime:
                self.cancel(submitted.verdict_id)
                raise
            answer = self._ask(
                "GET", path, deadline, params={"wait": min(wait, deadline.remaining)}
            )
            status = Status.model_validate_json(answer)
        return verdict

    def cancel(self, verdict_id: str) -> Status:
        """Withdraws this client's interest in a verdict."""
        return Status.model_validate_json(self._ask("DELETE", f"/v1/verdicts/{verdict_id}"))

    def events(self, verdict_id: str) -> Iterator[tuple[str, str]]:
        """Yields kind and JSON of each event up to the end of the verdict. Kinds: status, progress,
        end.
        """
        with self._http.sse(f"/v1/verdicts/{verdict_id}/events", timeout=TIMEOUT_SECONDS) as stream:
            answer = stream.response
            if answer.status_code >= 400:
                answer.read()
                read_answer(answer.status_code, answer.content, None, "GET", str(answer.url))
            for event in stream:
                yield event.event, event.data

    # -------------------------------------------------------------- many
    def score_many(
        self, candidates: Sequence[tuple[Named, str]], *, device: str | None = None, group: str | None = None,
        timeout: float | None = None, **options: Any,
    ) -> list[Verdict]:  # fmt: skip
        """Judges many candidates, submitted together, and returns their verdicts in order. Equal
        candidates are judged once.

        options: as for `score`. timeout: seconds for everything together; afterwards the open
        verdicts are withdrawn and JudgeServiceError is raised.
        """
        deadline = Deadline(timeout)
        submitted = self.score_batch(candidates, wait=False, device=device, group=group, **options)
        return self._results(submitted, deadline)

    def score_batch(
        self, candidates: Sequence[tuple[Named, str]], *, wait: bool = True, device: str | None = None,
        group: str | None = None, **options: Any,
    ) -> list[Any]:  # fmt: skip
        """Submits many candidates in one request. Returns their verdicts, or with wait=False a list
        of SubmittedVerdict.
        """
        bodies = [
            submission_of(problem, code, options, device, group) for problem, code in candidates
        ]
        submitted = [SubmittedVerdict(**dict(status)) for status in self._submit_all(bodies)]
        for status in submitted:
            status._client = self
        return self._results(submitted, Deadline(None)) if wait else list(submitted)

    def _results(self, submitted: Sequence[Status], deadline: Deadline) -> list[Verdict]:
        ended: dict[str, Status] = {status.verdict_id: status for status in submitted}
        while pending := [key for key, status in ended.items() if not status.state.ended]:
            try:
                deadline.check(ended[pending[0]])
            except VerdictNotInTime:
                for verdict_id in pending:
                    self.cancel(verdict_id)
                raise
            wait = {"wait": min(WAIT_SECONDS, deadline.remaining)}
            # The server accepts at most MAX_BATCH ids in a request.
            body = {"verdict_ids": pending[:MAX_BATCH]}
            answer = self._ask("POST", "/v1/verdicts/wait", deadline, params=wait, json=body)
            statuses = VerdictList.model_validate_json(answer).verdicts
            ended |= {status.verdict_id: status for status in statuses}
        verdicts = []
        for status in submitted:
            final_status = ended[status.verdict_id].model_copy(update={"known": status.known})
            verdict = verdict_of(final_status)
            assert verdict is not None, "it has ended"
            verdicts.append(verdict)
        return verdicts

    def _submit_all(self, bodies: Sequence[dict[str, Any]]) -> list[Status]:
        statuses: dict[int, Status] = {}
        waiting, deadline, tries = list(range(len(bodies))), time.monotonic() + self._patience, 0
        while waiting:
            now, waiting = _one_request(waiting, bodies)
            answer = BatchAnswer.model_validate_json(
                self._ask(
                    "POST", "/v1/batches", json={"submissions": [bodies[index] for index in now]}
                )
            )
            again = _without_submitted(answer, now, statuses)
            if not again:
                deadline, tries = time.monotonic() + self._patience, 0
                continue
            waiting = again + waiting
            # Any accepted submission starts the patience anew.
            deadline = time.monotonic() + self._patience if len(again) < len(now) else deadline
            busy = ServiceBusy("the queue is full", answer.retry_after)
            self._sleep(pause_seconds(tries, busy), deadline, busy)
            tries += 1
        return [statuses[index] for index in range(len(bodies))]

    # -------------------------------------------------------------- async
    async def score_async(
        self, problem: Named, code: str, *, device: str | None = None, group: str | None = None,
        timeout: float | None = None, **options: Any,
    ) -> Verdict:  # fmt: skip
        """Judges a candidate within an event loop, like `score`. Cancelling the task cancels the
        verdict.
        """
        import httpx2

        deadline = Deadline(timeout)
        async with httpx2.AsyncClient(**self._settings) as http:
            body = submission_of(problem, code, options, device, group)
            answer = await self._ask_async(http, "POST", "/v1/verdicts", deadline, json=body)
            submitted = Status.model_validate_json(answer)
            address, status = f"/v1/verdicts/{submitted.verdict_id}", submitted
            try:
                while (
                    verdict := verdict_of(status.model_copy(update={"known": submitted.known}))
                ) is None:
                    deadline.check(status)
                    wait = min(WAIT_SECONDS, deadline.remaining)
                    answer = await self._ask_async(
                        http, "GET", address, deadline, params={"wait": wait}
                    )
                    status = Status.model_validate_json(answer)
            except (asyncio.CancelledError, VerdictNotInTime):
                # A second cancellation of the task must not cancel this withdrawal.
                await asyncio.shield(self._ask_async(http, "DELETE", address, Deadline(None)))
                raise
        return verdict

    async def score_many_async(
        self, candidates: Sequence[tuple[Named, str]], *, at_once: int = 64, **options: Any
    ) -> list[Verdict]:
        """Judges many candidates, `at_once` in parallel, and returns their verdicts in order."""
        slots = asyncio.Semaphore(at_once)

        async def score_candidate(problem: Named, code: str) -> Verdict:
            async with slots:
                return await self.score_async(problem, code, **options)

        return list(
            await asyncio.gather(*(score_candidate(problem, code) for problem, code in candidates))
        )

    # -------------------------------------------------------------- the service
    def health(self) -> Health:
        """Returns the state of the service, also of a service unable to judge. Raises
        JudgeServiceError.
        """
        import httpx2

        try:
            return Health.model_validate_json(self._http.get("/v1/health").content)
        except (httpx2.HTTPError, ValueError) as error:
            raise JudgeServiceError(
                f"{self.url} does not answer as a judge service: {error}; start one with agent serve, or name another"
            ) from None

    def queue(self) -> QueueState:
        """Returns the length of the queue, by device."""
        return QueueState.model_validate_json(self._ask("GET", "/v1/queue"))

    # -------------------------------------------------------------- one request
    def _ask(
        self, method: str, path: str, limit: Deadline | None = None, **arguments: Any
    ) -> bytes:
        """Returns the body of the answer. Repeats the request to a busy or absent server, within
        `patience` and the limit.
        """
        deadline, tries = self._last_try(limit), 0
        while True:
            try:
                return self._once(method, path, arguments)
            except ServiceBusy as busy:
                self._sleep(pause_seconds(tries, busy), deadline, busy)
                tries += 1

    def _once(self, method: str, path: str, arguments: Mapping[str, Any]) -> bytes:
        import httpx2

        try:
            answer = self._http.request(method, path, **arguments)
        except httpx2.TransportError as error:
            raise self._unreachable(error) from None
        self._met = True
        return read_answer(
            answer.status_code,
            answer.content,
            answer.headers.get("retry-after"),
            method,
            str(answer.url),
        )

    def _last_try(self, limit: Deadline | None) -> float:
        """Returns the end of the patience with an absent server, on the monotonic clock."""
        remaining = limit.remaining if limit is not None else math.inf
        return time.monotonic() + min(self._patience, remaining)

    async def _ask_async(
        self, http: httpx2.AsyncClient, method: str, path: str, limit: Deadline, **arguments: Any
    ) -> bytes:
        import httpx2

        deadline, tries = self._last_try(limit), 0
        while True:
            try:
                answer = await http.request(method, path, **arguments)
                self._met, after = True, answer.headers.get("retry-after")
                return read_answer(
                    answer.status_code, answer.content, after, method, str(answer.url)
                )
            except httpx2.TransportError as error:
                busy = self._unreachable(error)
            except ServiceBusy as refusal:
                busy = refusal
            seconds = pause_seconds(tries, busy)
            _check_patience(seconds, deadline, busy, self.url)
            await asyncio.sleep(seconds)
            tries += 1

    def _unreachable(self, error: Exception) -> ServiceBusy:
        message = f"no connection ({type(error).__name__}: {error}): is agent serve running there?"
        if not self._met:
            self._raise_if_unknown()
            raise JudgeServiceError(f"{self.url}: {message}") from None
        return ServiceBusy(message, None)

    def _raise_if_unknown(self) -> None:
        """Raises InputError if the service does not know the token.

        Without a valid token the service reads no body and closes the connection, so its answer to
        a request with a body may be lost. This request has no body.
        """
        import httpx2

        try:
            answer = self._http.get("/v1/queue")
        except httpx2.TransportError:
            return
        if answer.status_code == UNAUTHORIZED:
            read_answer(answer.status_code, answer.content, None, "GET", str(answer.url))

    def _sleep(self, seconds: float, deadline: float, busy: ServiceBusy) -> None:
        _check_patience(seconds, deadline, busy, self.url)
        time.sleep(seconds)


def _check_patience(seconds: float, deadline: float, busy: ServiceBusy, url: str) -> None:
    if time.monotonic() + seconds > deadline:
        raise JudgeServiceError(f"{url}: {busy}")


def _one_request(
    waiting: list[int], bodies: Sequence[dict[str, Any]]
) -> tuple[list[int], list[int]]:
    """Splits waiting indices into those of the next request and the remaining ones."""
    size = count = 0
    while count < min(MAX_BATCH, len(waiting)):
        size += len(json.dumps(bodies[waiting[count]]))
        # A single large submission is sent alone; the server decides on its size.
        if count and size > REQUEST_BATCH_BYTES:
            break
        count += 1
    return waiting[:count], waiting[count:]


def _without_submitted(
    answer: BatchAnswer, indices: Sequence[int], statuses: dict[int, Status]
) -> list[int]:
    """Stores the status of accepted submissions, and returns the indices to be sent again. Raises
    InputError for an invalid candidate.
    """
    again = []
    for index, entry in zip(indices, answer.verdicts, strict=True):
        if entry.status is not None:
            statuses[index] = entry.status
        elif entry.error is not None and entry.error.code in (Code.QUEUE_FULL, Code.QUOTA):
            again.append(index)
        else:
            raise InputError(
                f"candidate {index + 1}: {entry.error.message if entry.error else 'no answer'}"
            )
    return again


def describe_activity(status: Status) -> str:
    """Describes the current step of a verdict to the user."""
    if status.position is not None:
        eta = f", about {status.eta_seconds:.0f} s" if status.eta_seconds is not None else ""
        return f"waiting at the judge service, position {status.position}{eta}"
    return status.doing or status.state.value
