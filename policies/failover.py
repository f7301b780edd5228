"""Several servers of the same model: if a server fails, the next server is asked."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from kernelwright.policies.base import (
    Completion,
    PaidReply,
    Policy,
    PolicyError,
    PolicyUnavailable,
    Request,
    Trouble,
)
from kernelwright.policies.forwarding import Forwarding

log = logging.getLogger(__name__)

_FAILS_EVERYWHERE = {Trouble.REQUEST, Trouble.CONTEXT, Trouble.NOT_INSTALLED}
"""Troubles of the request itself, which every server has with it."""


class FailoverPolicy(Forwarding):
    """Asks the last answering server, and after a failure each other server once, in order."""

    def __init__(self, policies: Sequence[Policy], name: str) -> None:
        """`policies`: in the order of preference. `name`: the name `open_policy` opens."""
        super().__init__(policies[0])
        self._policies, self._name = list(policies), name

    @property
    def name(self) -> str:
        """Returns the name with all addresses; a completion names the server that gave it."""
        return self._name

    def sample(self, requests: Sequence[Request]) -> list[Completion]:
        """Returns one completion per request. Raises the error with the shortest wait if all
        servers fail.
        """
        finished: dict[int, Completion] = {}
        paid: dict[int, tuple[PaidReply, ...]] = {}
        errors: list[PolicyError] = []
        start = self._policies.index(self.policy)
        # Begin with the server that answered last.
        for policy in self._policies[start:] + self._policies[:start]:
            missing = [index for index in range(len(requests)) if index not in finished]
            try:
                completions = policy.sample([requests[index] for index in missing])
            except PolicyError as error:
                errors.append(error)
                finished |= {
                    missing[position]: completion for position, completion in error.finished.items()
                }
                for position, replies in error.paid.items():
                    paid[missing[position]] = paid.get(missing[position], ()) + replies
                if error.trouble in _FAILS_EVERYWHERE or any(
                    len(replies) > 1 for replies in paid.values()
                ):
                    break
                log.warning("%s; asking the next server", error)
                continue
            self.policy = policy
            finished |= dict(zip(missing, completions, strict=True))
            return [
                _with_paid(finished[index], paid.get(index, ())) for index in range(len(requests))
            ]
        raise _joined(errors, finished, paid)

    def close(self) -> None:
        """Closes the connections of all servers."""
        for policy in self._policies:
            policy.close()


def _with_paid(completion: Completion, replies: Sequence[PaidReply]) -> Completion:
    """Returns the completion with the added usage of earlier answers without a reply."""
    usage = completion.usage
    for reply in replies:
        usage = usage.plus(reply.usage)
    return completion.with_(usage=usage)


def _joined(
    errors: Sequence[PolicyError],
    finished: dict[int, Completion],
    paid: dict[int, tuple[PaidReply, ...]],
) -> PolicyError:
    """Returns the error to raise: the one with the shortest wait, else a refusal, else the last
    error.
    """
    passing = [error for error in errors if isinstance(error, PolicyUnavailable)]
    error = min(passing, key=lambda error: error.retry_after or 0.0) if passing else errors[-1]
    if errors[-1].trouble in _FAILS_EVERYWHERE:
        error = errors[-1]
    error.finished = {
        index: _with_paid(completion, paid.get(index, ())) for index, completion in finished.items()
    }
    error.paid = {index: replies for index, replies in paid.items() if index not in finished}
    return error
