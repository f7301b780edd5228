"""Base of policies that wrap an inner policy and take over its properties."""

from __future__ import annotations

from kernelwright.policies.base import Capabilities, Policy, PromptForm, StopsAnswering


class Forwarding:
    """Forwards everything of a policy but `sample`."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    @property
    def name(self) -> str:
        """Returns the name of the inner policy."""
        return self.policy.name

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of the policy inside."""
        return self.policy.capabilities

    @property
    def prompt_form(self) -> PromptForm:
        """Returns the prompt form of the inner policy."""
        return self.policy.prompt_form

    def stop_answering(self) -> None:
        """Stops the inner policy if it can be stopped in the middle of an answer."""
        if isinstance(self.policy, StopsAnswering):
            self.policy.stop_answering()

    def close(self) -> None:
        """Closes the inner policy."""
        self.policy.close()
