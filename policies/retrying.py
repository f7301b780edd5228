"""Any policy, asked again while it is unavailable. The only place in the project that retries."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kernelwright.policies.base import Completion, Policy, PolicyError, PolicyUnavailable, Request
from kernelwright.policies.forwarding import Forwarding

if TYPE_CHECKING:
    from tenacity import Retrying

log = logging.getLogger(__name__)

MAX_WAIT_SECONDS = 60.0
"""Seconds; a server that names its own wait is believed beyond it, as far as the budget goes."""


class RetryingPolicy(Forwarding):
    """Wraps a policy. A PolicyRefused passes at once; what was finished is never asked for twice."""

    def __init__(
        self,
        policy: Policy,
        budget: float = 600.0,
        first_wait: float = 0.5,
        sleep: Callable[[float], None] = time.sleep,
        on_wait: Callable[[PolicyUnavailable, float], None] | None = None,
    ) -> None:
        """Gives up when the next question would come later than `budget` seconds after the first one."""
        super().__init__(policy)
        self._budget = budget
        self._first_wait = first_wait
        self._sleep = sleep
        self._on_wait = on_wait

    def sample(self, requests: Sequence[Request]) -> list[Completion]:
        """Returns one completion for each request; an error that is passed on carries all completions that were
        finished in any attempt.
        """
        finished: dict[int, Completion] = {}
        try:
            self._retrying()(self._ask_for_the_rest, requests, finished)
        except PolicyError as error:
            error.finished = dict(finished)
            raise
        return [finished[place] for place in range(len(requests))]

    def _ask_for_the_rest(self, requests: Sequence[Request], finished: dict[int, Completion]) -> None:
        missing = [place for place in range(len(requests)) if place not in finished]
        try:
            answers = dict(enumerate(self.policy.sample([requests[place] for place in missing])))
        except PolicyError as error:
            finished.update({missing[place]: completion for place, completion in error.finished.items()})
            raise
        finished.update({missing[place]: completion for place, completion in answers.items()})

    def _retrying(self) -> Retrying:
        import tenacity

        def wait(state: tenacity.RetryCallState) -> float:
            """Doubles, with some chance in it so that many askers do not come back together; or as the server says."""
            asked_for = getattr(state.outcome.exception() if state.outcome else None, "retry_after", None)
            doubled = self._first_wait * 2 ** min(state.attempt_number - 1, 30)
            return max(asked_for or 0.0, min(doubled, MAX_WAIT_SECONDS) + random.uniform(0.0, self._first_wait))

        def tell(state: tenacity.RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            seconds = state.next_action.sleep if state.next_action else 0.0
            log.info("%s; asking again in %.1f s", error, seconds)
            if self._on_wait is not None and isinstance(error, PolicyUnavailable):
                self._on_wait(error, seconds)

        return tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(PolicyUnavailable),
            wait=wait,
            stop=tenacity.stop_before_delay(self._budget),
            sleep=self._sleep,
            before_sleep=tell,
            reraise=True,
        )
