"""Errors of a model's server: HTTP statuses, transport errors, and answers of status 200 without a reply."""

from __future__ import annotations

import email.utils
import math
import re
import time
from collections.abc import Mapping
from typing import Any

from kernelwright.policies.base import PolicyError, PolicyRefused, PolicyUnavailable, Trouble
from kernelwright.policies.http.server import ModelServer

_QUOTA_CODES = {
    "insufficient_quota",
    "billing_hard_limit_reached",
    "billing_error",
    "insufficient_credits",
}
_CONTEXT_CODES = {"context_length_exceeded", "request_too_large"}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class UnreadableAnswer(PolicyUnavailable):
    """The server answered with status 200, so the answer counts as paid, and it holds no reply of the model."""

    def __init__(self, message: str, trouble: Trouble, raw: str, content: object = None) -> None:
        """Stores the body. `raw`: as text. `content`: decoded, if possible."""
        super().__init__(message, trouble)
        self.raw, self.content = raw, content


class UnknownField(Exception):
    """The server refuses a request, perhaps for a field it does not take."""

    def __init__(self, field: str, refusal: PolicyError) -> None:
        """Stores the refusal. `field`: name of the refused field; empty if the server names none."""
        super().__init__(field)
        self.field, self.refusal = field, refusal


def error_of_status(
    status: int, headers: Mapping[str, str], content: object, server: ModelServer
) -> PolicyError:
    """Returns the error of an HTTP status. `content`: the decoded body."""
    url, quoted = server.url, server.quotation(content)
    # Codes come before statuses: servers use 400, 403 and 429 for several causes.
    codes = _codes(content)
    if codes & _QUOTA_CODES or status == 402:
        return PolicyRefused(
            f"{url} says that there is no credit left ({status}){quoted}; top up, or name another policy",
            Trouble.QUOTA,
        )
    if status == 429:
        wait = retry_after(headers, content)
        return PolicyUnavailable(f"{url} is busy (429){quoted}", Trouble.BUSY, retry_after=wait)
    if status in (408, 409, 425) or status >= 500:
        wait = retry_after(headers, content)
        return PolicyUnavailable(
            f"{url} failed ({status}){quoted}", Trouble.SERVER, retry_after=wait
        )
    if status == 401 or (status == 403 and "invalid_request_error" not in codes):
        return PolicyRefused(
            f"{url} does not accept the key ({status}){quoted}; set {server.key_variable} to a key for this server",
            Trouble.KEY,
        )
    if status == 404:
        return PolicyRefused(
            f"{url} has no model {server.model!r} (404){quoted}; check the name and the address (most end in /v1)",
            Trouble.MODEL,
        )
    if codes & _CONTEXT_CODES or status == 413 or "input_tokens" in codes:
        return PolicyRefused(
            f"the prompt does not fit {server.model}{quoted}; shorten it or lower --reply-tokens",
            Trouble.CONTEXT,
        )
    return PolicyRefused(f"{url} refuses the request ({status}){quoted}", Trouble.REQUEST)


def error_without_reply(content: object, raw: str, reason: str, server: ModelServer) -> PolicyError:
    """Returns the error of a status-200 answer without a reply: the error reported inside, or the
    missing part.

    `reason`: the missing part of the form.
    """
    status = _reported_status(content)
    if status is not None or _codes(content) & _QUOTA_CODES:
        reported = error_of_status(status or 402, {}, content, server)
        if isinstance(reported, PolicyRefused):
            return reported
        return UnreadableAnswer(str(reported), reported.trouble, raw, content)
    return UnreadableAnswer(
        f"{server.url} sent no reply of a model ({reason}){server.quotation(content)}",
        Trouble.NONSENSE,
        raw,
        content,
    )


def refused_field(content: object) -> str:
    """Returns the request field named in an error's `param` or `loc`; empty if there is none."""
    inner = _error_object(content)
    details = inner.get("detail")
    locations = (
        [entry.get("loc") for entry in details if isinstance(entry, dict)]
        if isinstance(details, list)
        else []
    )
    paths = [
        inner.get("param"),
        *("/".join(map(str, loc)) for loc in locations if isinstance(loc, list)),
    ]
    path = next((path for path in paths if isinstance(path, str) and path), "")
    return re.split(r"[./]", path)[-1]


def unavailable(error: BaseException, server: ModelServer) -> PolicyError:
    """Returns the error of a transport error of the HTTP library, which its class's name tells apart."""
    # Class names, because the HTTP library may be httpx or another one.
    names = {cause.__name__ for link in _chain(error) for cause in type(link).__mro__}
    if "InvalidURL" in names:
        return server.no_address()
    if "UnsupportedProtocol" in names:
        return PolicyRefused(
            f"{server.url} redirects to no address of HTTP", Trouble.NOT_THE_PROTOCOL
        )
    if "SSLError" in names:
        return PolicyRefused(
            f"{server.url} and this machine agree on no TLS connection ({_reason_of_tls(error)}): is it https, and is "
            "its certificate known here (SSL_CERT_FILE)?",
            Trouble.NOT_THE_PROTOCOL,
        )
    if "TooManyRedirects" in names:
        return PolicyRefused(
            f"{server.url} redirects without an end: check the address", Trouble.NOT_THE_PROTOCOL
        )
    if names & {"TimeoutException", "APITimeoutError", "TimeoutError"}:
        return PolicyUnavailable(f"{server.url} did not answer in time", Trouble.TIMEOUT)
    if "DecodingError" in names:
        return PolicyUnavailable(
            f"{server.url} sent a body that cannot be decompressed", Trouble.NONSENSE
        )
    if names & {"RemoteProtocolError", "ReadError"}:
        return PolicyUnavailable(
            f"{server.url} cut its answer off, or does not speak HTTP", Trouble.CUT_OFF
        )
    return PolicyUnavailable(f"cannot reach {server.url}: is the server up?", Trouble.CONNECTION)


def retry_after(headers: Mapping[str, str], content: object = None) -> float | None:
    """Returns the seconds to wait: `retry-after-ms`, `Retry-After` (RFC 9110, 10.2.3), or a field of the body."""
    milliseconds = _seconds(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    named = _seconds(headers.get("retry-after"))
    return named if named is not None else _seconds(_wait_in_body(content))


def _seconds(value: object) -> float | None:
    """Parses a wait: a number of seconds, `1m30s`, or an HTTP date. None for other values."""
    if isinstance(value, bool) or not isinstance(value, int | float | str) or value == "":
        return None
    try:
        seconds = float(value)
    except ValueError:
        seconds = _seconds_of_text(str(value))
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _seconds_of_text(text: str) -> float:
    durations = _DURATION.findall(text)
    if durations and _DURATION.sub("", text).strip() == "":
        return sum(float(number) * _SECONDS[unit] for number, unit in durations)
    try:
        date = email.utils.parsedate_tz(text)
        return math.nan if date is None else email.utils.mktime_tz(date) - time.time()
    except (ValueError, OverflowError, TypeError):
        return math.nan


def _wait_in_body(content: object) -> Any:
    """Returns the wait an error object names: `retry_after`, or `retryDelay` among its details
    (Google).
    """
    inner = _error_object(content)
    details = inner.get("details")
    objects = [inner, *(details if isinstance(details, list) else [])]
    waits = [
        entry.get(name)
        for entry in objects
        if isinstance(entry, dict)
        for name in ("retry_after", "retryDelay")
    ]
    return next((wait for wait in waits if wait is not None), None)


def _error_object(content: object) -> dict[str, Any]:
    """Returns the object that describes an error: the body, or the object under its `error`."""
    if isinstance(content, list) and content:  # Google answers with a list of one
        content = content[0]
    if not isinstance(content, dict):
        return {}
    inner = content.get("error")
    return inner if isinstance(inner, dict) else content


def _codes(content: object) -> set[str]:
    """Returns the codes by which an error names its kind."""
    inner = _error_object(content)
    return {str(inner[name]) for name in ("code", "type", "param", "status") if inner.get(name)}


def _reported_status(content: object) -> int | None:
    """Returns the HTTP status an error object in an answer of status 200 reports as its code."""
    inner = _error_object(content)
    codes = [inner.get(name) for name in ("code", "status", "status_code")]
    numbers = [int(str(code)) for code in codes if str(code).isdecimal() and len(str(code)) == 3]
    return next((number for number in numbers if 400 <= number < 600), None)


def _reason_of_tls(error: BaseException) -> str:
    reasons = [
        getattr(link, "verify_message", "") or getattr(link, "reason", "") for link in _chain(error)
    ]
    return next(
        (str(reason).replace("_", " ").lower() for reason in reasons if reason), "no reason"
    )


def _chain(error: BaseException | None) -> list[BaseException]:
    links: list[BaseException] = []
    while error is not None and len(links) < 10:
        links.append(error)
        error = error.__cause__ or error.__context__
    return links
