"""What a run has spent."""

from __future__ import annotations

from kernelwright.policies.base import Usage, Value


class Spent(Value):
    """Sums of usages. `dollars` counts what is known; `unpriced` says how many answers it leaves out."""

    answers: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    dollars: float = 0.0
    unpriced: int = 0
    estimated: int = 0
    """Answers whose tokens the server did not count."""

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def plus(self, usage: Usage) -> Spent:
        return Spent(
            answers=self.answers + 1,
            prompt_tokens=self.prompt_tokens + usage.prompt_tokens,
            completion_tokens=self.completion_tokens + usage.completion_tokens,
            dollars=self.dollars + (usage.dollars or 0.0),
            unpriced=self.unpriced + (usage.dollars is None),
            estimated=self.estimated + usage.estimated,
        )

    def __add__(self, other: Spent) -> Spent:
        return Spent(**{field: getattr(self, field) + getattr(other, field) for field in Spent.model_fields})
