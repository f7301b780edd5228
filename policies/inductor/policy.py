"""The compiler as a policy: it answers the first turn of a conversation with a draft, and no
later turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelwright.policies.base import (
    Capabilities,
    Completion,
    FinishReason,
    Origin,
    Policy,
    PolicyRefused,
    PromptForm,
    Request,
    Trouble,
    Usage,
)
from kernelwright.policies.deadlines import check_deadline
from kernelwright.policies.forwarding import Forwarding
from kernelwright.policies.inductor.draft import (
    POLICY_NAME,
    Draft,
    has_split_products,
    with_fp32_products,
)

IMPRECISE = "precision"
"""The fault of a request whose candidate is right except for its rounding (tools/faults.py)."""


MAX_REVISION = 200
"""Characters of a plan that are stored as the revision; the draft's head has all of it."""


class CompilerPolicy:
    """Compiler as a policy without a model. Callers wrap the policy in `DraftedTurn`, which knows
    the problem.
    """

    name = POLICY_NAME
    capabilities = Capabilities(seeds=True)
    prompt_form = PromptForm.CHAT

    def sample(self, requests: Sequence[Request]) -> list[Completion]:
        """Raises PolicyRefused: the compiler answers first turns only."""
        raise PolicyRefused(
            "the compiler gives one draft and repairs none: name a policy with --policy to go on",
            Trouble.REQUEST,
        )

    def close(self) -> None:
        """Does nothing: the policy holds no resources."""


class DraftedTurn(Forwarding):
    """Answers one turn of a conversation with a draft; the wrapped policy answers all other
    turns.

    Exception: a repair of the draft's precision is the draft again with tf32 or split products in
    fp32. The completion
    names `compiler`, `transformation` or `file` as its policy and holds no token ids, so GRPO
    never trains on it.
    """

    def __init__(
        self, policy: Policy, make: Callable[[float | None], Draft], origin: Origin = Origin.COMPILER, turn: int = 0,
        make_exact: Callable[[float | None], Draft] | None = None,
    ) -> None:  # fmt: skip
        """Wraps a policy.

        Args:
            policy: Answers every other turn, and this turn if the draft is refused.
            make: Makes the draft; called once with the deadline of the request.
            origin: Author of the draft, also stored as the turn's policy.
            turn: number of the answered turn, from 0.
            make_exact: Makes the draft without split products, for drafts whose split products are refused.
        """
        super().__init__(policy)
        self._make, self._origin, self._turn = make, origin, turn
        self._draft: Draft | None = None
        self._make_exact = make_exact
        self.on_author: Callable[[Origin], None] = lambda _: None

    def sample(self, requests: Sequence[Request]) -> list[Completion]:
        """Returns one completion per request, in order."""
        return [completion for request in requests for completion in self._complete(request)]

    def _complete(self, request: Request) -> list[Completion]:
        if request.turn != self._turn:
            exact = self._exact(request)
            return self._ask_policy(request) if exact is None else [self._completion(exact)]
        self.on_author(self._origin)
        draft = self._draft = self._make(request.deadline)
        if not draft.usable:
            check_deadline(request.deadline)  # it may have been refused for want of time
        if (
            not draft.usable
            and not isinstance(self.policy, CompilerPolicy)
            and self.policy.name != POLICY_NAME
        ):
            return self._ask_policy(request)
        return [self._completion(draft)]

    def _ask_policy(self, request: Request) -> list[Completion]:
        self.on_author(Origin.POLICY)
        return self.policy.sample([request])

    def _exact(self, request: Request) -> Draft | None:
        """Returns the draft with fp32 products if the request is to repair the draft's precision;
        else None.
        """
        if request.turn != self._turn + 1 or request.fault != IMPRECISE:
            return None
        self.on_author(self._origin)
        draft = self._draft or self._make(request.deadline)  # a run that goes on in another process
        if has_split_products(draft.source):
            again = self._make_exact(request.deadline) if self._make_exact is not None else Draft()
            return again if again.usable and not has_split_products(again.source) else None
        source = with_fp32_products(draft.source)
        return draft.with_(source=source, seconds=0.0) if source else None

    def _completion(self, draft: Draft) -> Completion:
        text = f"```python\n{draft.source}```\n" if draft.usable else f"No draft: {draft.refused}"
        if draft.preface:
            text = f"{draft.preface}\n\n{text}"
        usage = Usage(prompt_tokens=0, completion_tokens=0, dollars=0.0)
        origin = Origin.TRANSFORMATION if draft.transformation else self._origin
        return Completion(
            text=text,
            finish=FinishReason.STOP,
            usage=usage,
            policy=origin.value,
            origin=origin,
            revision=draft.transformation or draft.plan[:MAX_REVISION] or None,
            latency=max(0.0, draft.seconds),
        )
