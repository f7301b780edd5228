"""Many candidates in one submission, and one request that waits for all of them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import httpx

from kernelwright_client.scores import Score

WAIT_SECONDS = 30.0
"""How long one request waits."""
MAX_BATCH = 256
MAX_BATCH_BYTES = 8 * 2**20
"""The limits of one request, below those of the service."""


async def score_together(
    http: httpx.AsyncClient, bodies: Sequence[Mapping[str, Any]], end: float
) -> list[Score | None]:
    """Returns the score of each submission; None for one that has none, which is to be asked for by itself.

    end: when waiting ends, of the monotonic clock. Raises nothing of the network or the service.
    """
    ids: list[str | None] = [None] * len(bodies)
    scores: dict[str, Score] = {}
    try:
        for numbers in _requests(bodies):
            answer = await http.post(
                "/v1/batches", json={"submissions": [bodies[n] for n in numbers]}
            )
            answer.raise_for_status()
            for number, entry in zip(numbers, answer.json()["verdicts"], strict=True):
                if (status := entry["status"]) is not None:
                    ids[number] = status["verdict_id"]
                    _note(scores, status)
        while (pending := _pending(ids, scores)) and (remaining := end - time.monotonic()) > 0:
            answer = await http.post(
                "/v1/verdicts/wait",
                params={"wait": min(WAIT_SECONDS, remaining)},
                json={"verdict_ids": pending[:MAX_BATCH]},
            )
            answer.raise_for_status()
            for status in answer.json()["verdicts"]:
                _note(scores, status)
    except (httpx.HTTPError, ValueError, KeyError):  # away, busy, or no service that takes batches
        pass
    return [scores.get(verdict_id) if verdict_id is not None else None for verdict_id in ids]


def _note(scores: dict[str, Score], status: Mapping[str, Any]) -> None:
    """Keeps the score of a verdict that has ended."""
    if status["state"] not in ("queued", "running"):
        scores[status["verdict_id"]] = Score.of(status)


def _pending(ids: Sequence[str | None], scores: Mapping[str, Score]) -> list[str]:
    """Returns each verdict once that has no score yet, in the order of the submissions."""
    return list(dict.fromkeys(one for one in ids if one is not None and one not in scores))


def _requests(bodies: Sequence[Mapping[str, Any]]) -> Iterator[list[int]]:
    """Splits the submissions, by their numbers, into requests that the service takes."""
    numbers: list[int] = []
    size = 0
    for number, body in enumerate(bodies):
        length = len(json.dumps(body))
        if numbers and (len(numbers) == MAX_BATCH or size + length > MAX_BATCH_BYTES):
            yield numbers
            numbers, size = [], 0
        numbers.append(number)
        size += length
    if numbers:
        yield numbers
