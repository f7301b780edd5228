"""The client of a judge service (docs/reference/service.md): sync, async and many at a time.

Trouble of the service or of the network is waited out, and then is a `Score` without a verdict, which masks its reward.
Only what the user must mend (a wrong token, an unknown problem) is raised, so that no training goes on without a judge.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
import weakref
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import httpx

from kernelwright_client.batches import score_together
from kernelwright_client.replies import code_of
from kernelwright_client.scores import Score
from kernelwright_client.tasks import Task

URL_VARIABLE, TOKEN_VARIABLE = "KERNELWRIGHT_JUDGE_URL", "KERNELWRIGHT_TOKEN"
DEFAULT_URL = "http://127.0.0.1:8700"
WAIT_SECONDS = 30
"""How long one request waits for a verdict."""
PATIENCE_SECONDS = 900.0
TIMEOUT_SECONDS = 3600.0
"""Seconds for one verdict in all: no training step hangs for longer."""
LARGEST_CANDIDATE = 256 * 1024
"""Bytes, the service's limit."""
TRY_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
INSIST = 1
FAULTS_OF_LOAD = frozenset({"timeout", "memory", "crash"})
"""Faults that a loaded machine may cause; a second time in a row they are the candidate's own."""
AT_ONCE = 64
"""Requests that one client has under way."""


class JudgeError(RuntimeError):
    """What the user must mend: an unknown problem, a wrong token, an address that is no judge. One line."""


class JudgeClient:
    """One judge service. Usable from several threads and event loops."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        options: Mapping[str, Any] | None = None,
        device: str | None = None,
        patience: float = PATIENCE_SECONDS,
        insist: int = INSIST,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        """url, token: None takes them from KERNELWRIGHT_JUDGE_URL and KERNELWRIGHT_TOKEN; what `agent serve` prints
        (`http://HOST:PORT/#token=TOKEN`) is an address with its token. options: of every verdict.
        device: "cpu", "cuda" or None (the service's first). patience: seconds that trouble of the service is waited
        out. insist: how often a candidate whose fault a loaded machine may have caused (timeout, memory, crash) is
        judged again; the fault that it has after that is its own, so that hanging is worth no more than being wrong.
        timeout: seconds that one verdict may take in all, the service's queue included; then the score has none.
        """
        address, _, url_token = (url or os.environ.get(URL_VARIABLE) or DEFAULT_URL).partition(
            "#token="
        )
        if not address.startswith(("http://", "https://")):
            raise JudgeError(f"{address!r} is no address of a judge: give http://HOST:PORT")
        self.url = address.rstrip("/")
        secret = url_token or token or os.environ.get(TOKEN_VARIABLE) or ""
        if not (secret.isascii() and secret.isprintable()):
            raise JudgeError("the token holds characters that no header carries: copy it once more")
        self._options, self._device, self._patience = dict(options or {}), device, patience
        self._insist, self._timeout = insist, timeout
        self._settings: dict[str, Any] = {
            "base_url": self.url,
            "headers": {"Authorization": f"Bearer {secret}"} if secret else {},
            "timeout": httpx.Timeout(WAIT_SECONDS + 30.0, pool=None),
            "limits": httpx.Limits(max_connections=AT_ONCE),
        }
        self._http = httpx.Client(**self._settings)
        self._of_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient]
        self._of_loop = weakref.WeakKeyDictionary()

    # -------------------------------------------------------------- verdicts
    def score(
        self,
        problem: str,
        code: str,
        *,
        group: str | None = None,
        timeout: float | None = None,
        **options: Any,
    ) -> Score:
        """Judges one candidate and waits for the verdict. Raises JudgeError for what the user must mend.

        code: the program, or the reply that holds it in a fenced block.
        timeout: seconds for everything together, the service's queue included; None takes the client's. Past it the
        verdict is withdrawn, and the score is one without a verdict.
        """
        score = self._score(problem, code, group, options, timeout)
        for _ in range(self._insist if score.fault in FAULTS_OF_LOAD else 0):
            score = self._score(problem, code, group, options, timeout) if score.mask else score
        return self._settled(score)

    async def score_async(
        self,
        problem: str,
        code: str,
        *,
        group: str | None = None,
        timeout: float | None = None,
        **options: Any,
    ) -> Score:
        """The same as `score`, without holding the event loop up."""
        score = await self._score_async(problem, code, group, options, timeout)
        return await self._insisted_async(score, problem, code, group, options, timeout)

    async def _insisted_async(
        self, score: Score, problem: str, code: str, group: str | None, options: Mapping[str, Any],
        timeout: float | None,
    ) -> Score:  # fmt: skip
        """Asks again for a score whose fault a loaded machine may have caused."""
        for _ in range(self._insist if score.fault in FAULTS_OF_LOAD else 0):
            score = (
                await self._score_async(problem, code, group, options, timeout)
                if score.mask
                else score
            )
        return self._settled(score)

    def _settled(self, score: Score) -> Score:
        return (
            replace(score, mask=False) if self._insist and score.fault in FAULTS_OF_LOAD else score
        )

    def _score(
        self,
        problem: str,
        code: str,
        group: str | None,
        options: Mapping[str, Any],
        timeout: float | None,
    ) -> Score:
        steps, answer = self._steps(problem, code, group, options, timeout), None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                return end.value
            answer = None
            if isinstance(step, float):
                time.sleep(step)
                continue
            try:
                answer = self._http.request(step.method, step.path, json=step.body)
            except httpx.TransportError as trouble:
                answer = trouble

    async def _score_async(
        self,
        problem: str,
        code: str,
        group: str | None,
        options: Mapping[str, Any],
        timeout: float | None,
    ) -> Score:
        steps, answer = self._steps(problem, code, group, options, timeout), None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                return end.value
            answer = None
            if isinstance(step, float):
                await asyncio.sleep(step)
                continue
            try:
                answer = await self._async_http().request(step.method, step.path, json=step.body)
            except httpx.TransportError as trouble:
                answer = trouble

    def _steps(
        self,
        problem: str,
        code: str,
        group: str | None,
        options: Mapping[str, Any],
        timeout: float | None,
    ) -> Generator[_Ask | float, httpx.Response | httpx.TransportError | None, Score]:
        """The requests of one verdict, for whoever sends them: yields a request, and is sent its answer or its error;
        or yields the seconds of a pause. Returns the score.
        """
        code = code_of(code)
        if (refused := _too_large(code)) is not None:
            return refused
        seconds = self._timeout if timeout is None else timeout
        end, patience, tries, path = time.monotonic() + seconds, self._deadline(), 0, ""
        ask = _Ask("POST", "/v1/verdicts", self._body(problem, code, group, options))
        while True:
            if (remaining := end - time.monotonic()) <= 0:
                if path:
                    yield _Ask("DELETE", path)
                return Score.unscored(
                    "timeout", f"no verdict within {seconds:g} s: give a larger timeout"
                )
            if path:
                ask = _Ask("GET", f"{path}?wait={min(WAIT_SECONDS, remaining):.2f}")
            try:
                status = _read((yield ask))
            except (httpx.TransportError, _Again) as trouble:
                if time.monotonic() > patience:
                    return _gave_up(trouble)
                yield min(_pause(trouble, tries), max(0.0, end - time.monotonic()))
                tries += 1
                continue
            if (score := _ended(status)) is not None:
                return score
            path, patience, tries = f"/v1/verdicts/{status['verdict_id']}", self._deadline(), 0

    async def score_many_async(
        self,
        candidates: Sequence[tuple[str, str]],
        *,
        group: str | Sequence[str] | None = None,
        **options: Any,
    ) -> list[Score]:
        """Judges (problem, code) pairs; the scores are in their order. options: also `timeout`.

        They are submitted together, and one request waits for all of them. What that leaves without a score (trouble of
        the service or the network, a full queue, a fault that a loaded machine may have caused) is asked for one by
        one, as `score_async` does. group: of all, or of each of them.
        """
        groups = [group] * len(candidates) if group is None or isinstance(group, str) else group
        seconds = options.pop("timeout", None) or self._timeout
        end = time.monotonic() + seconds
        programs = [(problem, code_of(code)) for problem, code in candidates]
        asked = list(zip(programs, groups, strict=True))
        bodies = {
            number: self._body(problem, code, name, options)
            for number, ((problem, code), name) in enumerate(asked)
            if _too_large(code) is None
        }
        found = await score_together(self._async_http(), list(bodies.values()), end)
        scores = dict(zip(bodies, found, strict=True))

        async def finish(number: int) -> Score:
            (problem, code), name = asked[number]
            remaining = max(0.0, end - time.monotonic())
            if (score := scores.get(number)) is None:
                return await self.score_async(
                    problem, code, group=name, timeout=remaining, **options
                )
            return await self._insisted_async(score, problem, code, name, options, remaining)

        return await asyncio.gather(*map(finish, range(len(asked))))

    def score_many(
        self,
        candidates: Sequence[tuple[str, str]],
        *,
        group: str | Sequence[str] | None = None,
        **options: Any,
    ) -> list[Score]:
        """The same without an event loop of the caller's."""

        async def run() -> list[Score]:
            try:
                return await self.score_many_async(candidates, group=group, **options)
            finally:
                await self.aclose()

        return asyncio.run(run())

    # -------------------------------------------------------------- tasks
    def tasks(self, names: Iterable[str] | None = None) -> list[Task]:
        """The service's problems with their references; those named, or all. Raises JudgeError."""
        return [self.task(name) for name in (self.names() if names is None else names)]

    def names(self) -> list[str]:
        """The names of the service's problems. Raises JudgeError."""
        return [one["name"] for one in self._get("/v1/problems")["problems"]]

    def task(self, name: str) -> Task:
        """One problem by its name. Raises JudgeError where the service has none of that name."""
        return Task.of(self._get(f"/v1/problems/{name}"))

    def health(self) -> dict[str, Any]:
        """Whether the service judges, and with what. Raises JudgeError."""
        return dict(self._get("/v1/health"))

    def _get(self, path: str) -> Any:
        deadline, tries = self._deadline(), 0
        while True:
            try:
                return _read(self._http.get(path))
            except (httpx.TransportError, _Again) as trouble:
                if time.monotonic() > deadline:
                    raise JudgeError(
                        f"no answer of the judge at {self.url}: {trouble}"
                    ) from trouble
                time.sleep(_pause(trouble, tries))
                tries += 1

    # -------------------------------------------------------------- requests
    def _body(
        self, problem: str, code: str, group: str | None, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        named = {"source": problem, "name": "given"} if "\n" in problem else {"name": problem}
        body: dict[str, Any] = {
            "problem": named,
            "candidate": _sendable(code),
            "options": {**self._options, **options},
        }
        if self._device:
            body["device"] = self._device
        if group:
            body["group"] = group[:200]
        return body

    def _deadline(self) -> float:
        return time.monotonic() + self._patience

    def _async_http(self) -> httpx.AsyncClient:
        """The client of the running loop: connections of one loop are of no use in another."""
        loop = asyncio.get_running_loop()
        if loop not in self._of_loop:
            self._of_loop[loop] = httpx.AsyncClient(**self._settings)
        return self._of_loop[loop]

    async def aclose(self) -> None:
        """Closes the connections of the running loop."""
        found = self._of_loop.pop(asyncio.get_running_loop(), None)
        if found is not None:
            await found.aclose()

    def close(self) -> None:
        """Closes the connections of the sync methods."""
        self._http.close()

    def __enter__(self) -> JudgeClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Ask(NamedTuple):
    """One request to the service."""

    method: str
    path: str
    body: Mapping[str, Any] | None = None


class _Again(Exception):
    """The service asks to be asked later."""

    def __init__(self, why: str, seconds: float | None) -> None:
        super().__init__(why)
        self.seconds = seconds


def _read(answer: httpx.Response | httpx.TransportError | None) -> Any:
    if isinstance(answer, Exception):
        raise answer
    assert answer is not None
    if answer.status_code < 400:
        return answer.json()
    try:
        why = answer.json()["error"]["message"]
    except (ValueError, KeyError, TypeError):
        why = f"status {answer.status_code}"
    if answer.status_code in TRY_AGAIN:
        given = answer.headers.get("Retry-After", "")
        raise _Again(why, float(given) if given.isdigit() else None)
    raise JudgeError(f"the judge at {answer.url.host} refused: {why}")


def _pause(trouble: Exception, tries: int) -> float:
    asked = trouble.seconds if isinstance(trouble, _Again) else None
    return min(asked if asked is not None else 0.25 * 2 ** min(tries, 8), 60.0)


def _ended(status: Mapping[str, Any]) -> Score | None:
    return None if status["state"] in ("queued", "running") else Score.of(status)


def _gave_up(trouble: Exception) -> Score:
    return Score.unscored("unreachable", f"no verdict: {type(trouble).__name__}: {trouble}")


def _sendable(code: str) -> str:
    """Half of a surrogate pair, which a tokenizer can produce, is no text that JSON in UTF-8 can carry."""
    return code.encode("utf-8", "replace").decode("utf-8")


def _too_large(code: str) -> Score | None:
    """The service refuses such a text; it is the candidate's fault all the same."""
    if (
        len(json.dumps(code)) <= LARGEST_CANDIDATE
        or len(code.encode("utf-8", "replace")) <= LARGEST_CANDIDATE
    ):
        return None
    why = f"ended at source: the text has more than {LARGEST_CANDIDATE:,} bytes"
    return Score(ended_at="source", fault="too_large", mask=False, explanation=why)
