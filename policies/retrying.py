"""Any policy, asked again while it is unavailable. The only place in the project that retries."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kernelwright.policies.base import (
    AskingInterrupted,
    Completion,
    PaidReply,
    Policy,
    PolicyError,
    PolicyUnavailable,
    Request,
)
from kernelwright.policies.deadlines import check_deadline, latest_deadline, seconds_until
from kernelwright.policies.forwarding import Forwarding

if TYPE_CHECKING:
    from tenacity import RetryCallState, Retrying

log = logging.getLogger(__name__)

MAX_RETRY_WAIT_SECONDS = 60.0
"""Seconds; a server that names its own wait is believed beyond it, as far as the budget goes."""
_LONG_WAIT_SECONDS = 5.0
"""Seconds from which on a wait is worth a warning."""
MAX_PAID_ANSWERS = 2
"""Maximum number of paid answers per request without a usable reply."""


class RetryingPolicy(Forwarding):
    """Wraps a policy and repeats temporary failures. Finished requests are never repeated."""

    def __init__(
        self,
        policy: Policy,
        budget: float = 600.0,
        first_wait: float = 0.5,
        sleep: Callable[[float], None] = time.sleep,
        on_wait: Callable[[PolicyUnavailable, float], None] | None = None,
    ) -> None:
        """Sets the limits of repetition: no request starts later than `budget` seconds after the
        first.
        """
        super().__init__(policy)
        self._budget = budget
        self._first_wait = first_wait
        self._sleep = sleep
        self._on_wait = on_wait

    def sample(self, requests: Sequence[Request]) -> list[Completion]:
        """Returns one completion per request; the usage includes earlier answers without a reply.

        Raises PolicyError with all finished completions and all paid answers without a reply.
        """
        pending = _PendingRequests(self.policy, requests)
        try:
            self._retrying(pending)(pending.ask_for_the_rest)
        except PolicyError as error:
            error.finished, error.paid = pending.finished, pending.lost()
            self._explain(error, pending)
            raise
        except KeyboardInterrupt as interrupt:
            raise AskingInterrupted(pending.lost()) from interrupt
        return [pending.finished[index] for index in range(len(requests))]

    def _sleep_until(self, seconds: float, deadline: float | None) -> None:
        """Waits before the next request. Raises DeadlineReached if the deadline passes."""
        remaining = seconds_until(deadline)
        self._sleep(seconds if remaining is None else min(seconds, remaining))
        check_deadline(deadline)

    def _explain(self, error: PolicyError, pending: _PendingRequests) -> None:
        """Adds to the message why it is not asked again."""
        if not isinstance(error, PolicyUnavailable):
            return
        if pending.paid_too_often:
            error.add(f"it was asked {MAX_PAID_ANSWERS} times, and may have charged for each")
        elif (error.retry_after or 0.0) > self._budget:
            error.add(
                f"it asks to wait {_duration(error.retry_after or 0.0)}, and --patience is {_duration(self._budget)}"
            )

    def _retrying(self, pending: _PendingRequests) -> Retrying:
        import tenacity

        def wait(state: RetryCallState) -> float:
            """Doubles, with some chance in it so that many askers do not come back together; or as the server says."""
            named = getattr(
                state.outcome.exception() if state.outcome else None, "retry_after", None
            )
            # Exponential backoff with jitter, unless the server names a longer wait.
            doubled = self._first_wait * 2 ** min(state.attempt_number - 1, 30)
            return max(
                named or 0.0,
                min(doubled, MAX_RETRY_WAIT_SECONDS) + random.uniform(0.0, self._first_wait),
            )

        def tell(state: RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            seconds = state.next_action.sleep if state.next_action else 0.0
            level = logging.WARNING if seconds >= _LONG_WAIT_SECONDS else logging.INFO
            log.log(level, "%s; asking again in %s", error, _duration(seconds))
            if self._on_wait is not None and isinstance(error, PolicyUnavailable):
                self._on_wait(error, seconds)

        return tenacity.Retrying(
            retry=tenacity.retry_if_exception(lambda error: pending.may_ask_again(error)),
            wait=wait,
            stop=tenacity.stop_before_delay(self._budget),
            sleep=lambda seconds: self._sleep_until(seconds, pending.deadline),
            before_sleep=tell,
            reraise=True,
        )


class _PendingRequests:
    """The requests of a call, with the completions and paid answers so far."""

    def __init__(self, policy: Policy, requests: Sequence[Request]) -> None:
        self._policy, self._requests = policy, requests
        self.finished: dict[int, Completion] = {}
        self._paid: dict[int, tuple[PaidReply, ...]] = {}
        self.deadline = latest_deadline(requests)

    def ask_for_the_rest(self) -> None:
        """Requests the missing completions. Raises PolicyError."""
        missing = [index for index in range(len(self._requests)) if index not in self.finished]
        check_deadline(self.deadline)
        try:
            completions = self._policy.sample([self._requests[index] for index in missing])
        except PolicyError as error:
            for position, replies in error.paid.items():
                self._paid[missing[position]] = self._paid.get(missing[position], ()) + replies
            self._finish(
                {missing[position]: completion for position, completion in error.finished.items()}
            )
            raise
        self._finish(dict(zip(missing, completions, strict=True)))

    def _finish(self, completions: dict[int, Completion]) -> None:
        for index, completion in completions.items():
            usage = completion.usage
            for reply in self._paid.get(index, ()):
                usage = usage.plus(reply.usage)
            self.finished[index] = completion.with_(usage=usage)

    @property
    def paid_too_often(self) -> bool:
        """Whether a request has been paid for as often as it may, and has no reply."""
        return any(len(replies) >= MAX_PAID_ANSWERS for replies in self.lost().values())

    def may_ask_again(self, error: BaseException) -> bool:
        """Whether the error may pass, and asking again is not paid for once too often."""
        return isinstance(error, PolicyUnavailable) and not self.paid_too_often

    def lost(self) -> dict[int, tuple[PaidReply, ...]]:
        """Returns the paid answers of requests that have no reply."""
        return {
            index: replies for index, replies in self._paid.items() if index not in self.finished
        }


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
