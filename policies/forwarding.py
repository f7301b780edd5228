"""A policy round another one: what it is comes from the one inside."""

from __future__ import annotations

from kernelwright.policies.base import Capabilities, Policy, PromptForm, StopsAnswering


class Forwarding:
    """Forwards everything of a policy but `sample`."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    @property
    def name(self) -> str:
        """The name of the policy inside."""
        return self.policy.name

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the policy inside."""
        return self.policy.capabilities

    @property
    def prompt_form(self) -> PromptForm:
        """The prompt form of the policy inside."""
        return self.policy.prompt_form

    def stop_answering(self) -> None:
        """Has the policy inside answer nobody any more, where it can be stopped in the middle of an answer."""
        if isinstance(self.policy, StopsAnswering):
            self.policy.stop_answering()

    def close(self) -> None:
        """Closes the policy inside."""
        self.policy.close()
